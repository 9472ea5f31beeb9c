#!/usr/bin/env bash
# Run the tests that need no other loader on one Python: scripts/test_version.sh python3.13
set -euo pipefail
cd "$(dirname "$0")/.."
version=$("$1" -c 'import sys, sysconfig; print("%d.%d%s" % (*sys.version_info[:2], "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))')
venv=.venv-$version
test -x "$venv/bin/python" || "$1" -m venv "$venv"
echo "Python $version: installing numpy, cloudpickle, jax, pyarrow, pillow, pytest into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable . hypothesis pytest pytest-xdist
# Packages without a wheel for this Python are left out; tests that need one are then skipped by name.
for package in jax pyarrow pillow; do
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$package" || echo "SKIPPED: $package has no wheel for $version"
done
"$venv/bin/python" -m pytest -q -n 2 --dist loadfile $(make --silent print-quick) tests/engine/executors tests/faults
