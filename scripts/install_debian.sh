#!/bin/sh
# Install what tests need of the system: scripts/install_debian.sh PACKAGE COMMAND..., unless it has one of the commands.
# chromium: pages (tests/metrics/test_report_in_browser.py, tests/cli/test_web.py). iproute2: slow networks (tests/ray/test_network.py).
set -eu
package=$1
shift
for name in "$@"; do
    if command -v "$name" >/dev/null 2>&1; then
        echo "$package: $(command -v "$name")"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "SKIPPED: there is no apt-get here. Install $package with the tools of your system to run all tests." >&2
    exit 0
fi
run=""
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "SKIPPED: installing $package needs root. Run: sudo scripts/install_debian.sh $package $*" >&2
        exit 0
    fi
    run="sudo"
fi
$run apt-get update -qq
$run apt-get install -y -qq --no-install-recommends "$package"
