"""Build the wheel and the sdist into dist/, and check them as a user would meet them.

They are built twice and must be equal byte for byte (`SOURCE_DATE_EPOCH`), pass `twine check`, and
the wheel must run in a new environment, without extras and with all that are for users.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from extra_packages import USER_EXTRAS

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Build, compare, check and try; return 1 if the two builds differ."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct").strip()
    os.environ["SOURCE_DATE_EPOCH"] = epoch
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        for target in (first, second):
            _print(f"Building into {target.name}/")
            _run(sys.executable, "-m", "build", "--outdir", str(target))
        digests = [_digests(target) for target in (first, second)]
        if digests[0] != digests[1]:
            sys.stderr.write(f"The two builds differ: {digests[0]} and {digests[1]}.\n")
            return 1
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(first, ROOT / "dist")
        built = sorted(str(path) for path in (ROOT / "dist").iterdir())
        _print(_run(sys.executable, "-m", "twine", "check", "--strict", *built))
        wheel = next(path for path in built if path.endswith(".whl"))
        _try(wheel, Path(folder, "plain"), "")
        _try(wheel, Path(folder, "extras"), f"[{','.join(USER_EXTRAS)}]")
    for name, digest in digests[0].items():
        _print(f"{digest}  dist/{name}")
    return 0


def _try(wheel: str, environment: Path, extras: str) -> None:
    """Install the wheel in a new environment and run the smoke test there."""
    _print(f"Installing gristmill{extras} from the wheel into a new environment")
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--constraint", str(ROOT / "constraints.txt"), wheel + extras)
    _print(_run(python, str(ROOT / "scripts" / "smoke_test.py"), *extras.strip("[]").split(",")))


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def _run(*command: str) -> str:
    """Run a command outside of the checkout's import path; show its output if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _print(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
