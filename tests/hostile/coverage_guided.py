"""Search for inputs that a parser reads wrongly, guided by coverage (atheris): `make fuzz`.

    python -m tests.hostile.coverage_guided FORMAT FOLDER -runs=COUNT

It starts from the sample of the format. An input that is read wrongly, or that crashes the process,
ends the run and is left in FOLDER; keep it in `tests/hostile/corpus/FORMAT`.
"""

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run atheris on the format that the command line names."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    atheris: Any = importlib.import_module("atheris")  # only `make fuzz` needs it
    with atheris.instrument_imports(include=["gristmill._data", "gristmill._io"]):
        parser: Any = importlib.import_module("tests.hostile.parsers").PARSERS[name]
        judge: Any = importlib.import_module("tests.hostile.run").judge
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    seeds = folder / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    parser.make(seeds / f"sample{parser.suffix}")
    path = folder / f"input{parser.suffix}"

    def test_one(data: bytes) -> None:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        path.unlink(missing_ok=True)  # another inode: it is another file
        path.write_bytes(data)
        verdict = judge(parser, path)
        if verdict not in ("equal", "refused"):
            raise AssertionError(f"{name}: {verdict}")

    atheris.Setup(
        [sys.argv[0], f"-artifact_prefix={folder}/", *sys.argv[3:], str(seeds)],
        test_one,
        enable_python_coverage=True,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
