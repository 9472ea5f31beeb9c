"""Write sbom.json: the packages that `pip install gristmill` installs, with their licenses."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", "constraints.txt", "."], cwd=ROOT, check=True)
        own = ["setuptools", "pip"]  # what a new environment has; without setuptools since 3.12
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *own], check=True)
        command = [sys.executable, "-m", "cyclonedx_py", "environment", python]
        command += ["--pyproject", "pyproject.toml", "--output-reproducible"]
        subprocess.run([*command, "--output-file", "sbom.json"], cwd=ROOT, check=True)
    sys.stdout.write("Wrote sbom.json\n")
