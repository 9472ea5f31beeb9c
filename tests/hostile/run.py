"""Mutate samples of one format and compare gristmill with the oracle, in a process of its own.

    python -m tests.hostile.run FORMAT FOLDER SEED COUNT

Prints one line of JSON: how many inputs were equal and refused, and which were wrong. A crash of
this process leaves the input that caused it in FOLDER.
"""

import hashlib
import json
import os
import random
import resource
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

from gristmill.errors import GristmillError
from tests.hostile.mutations import mutate
from tests.hostile.parsers import PARSERS, Parser

MAX_ADDRESS_BYTES = 8 * 2**30
"""Address space, of which libraries reserve some gigabytes without using them."""


def judge(parser: Parser, path: Path) -> str:
    """Return "equal", "refused", or what is wrong with how gristmill reads a file."""
    try:
        found = parser.read(path)
    except GristmillError as error:
        return "refused" if str(error) else "an error without a message"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    try:
        expected = parser.oracle(path)
    except Exception as error:
        if parser.is_stricter_allowed:
            return "refused"
        return f"read what the oracle refuses ({type(error).__name__}: {error})"[:300]
    return "equal" if repr(found) == repr(expected) else "other records than the oracle's"


def run(name: str, folder: Path, seed: int, count: int) -> dict[str, Any]:
    parser = PARSERS[name]
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    sample_path = folder / f"sample{parser.suffix}"
    parser.make(sample_path)
    sample = sample_path.read_bytes()
    assert judge(parser, sample_path) == "equal", judge(parser, sample_path)
    results: dict[str, Any] = {"equal": 0, "refused": 0, "wrong": {}}
    for number in range(count):
        data = mutate(sample, random.Random(f"{name} {seed} {number}"))
        path = (
            folder / f"input-{number}{parser.suffix}"
        )  # another name: it is another file for indexes
        path.write_bytes(data)
        verdict = judge(parser, path)
        if verdict in results:
            results[verdict] += 1
            path.unlink()
        else:
            kept = folder / f"{hashlib.sha256(data).hexdigest()[:12]}{parser.suffix}"
            path.rename(kept)
            results["wrong"].setdefault(verdict, []).append(kept.name)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    return results


def main(name: str, folder: str, seed: str, count: str) -> None:
    warnings.simplefilter("ignore")  # of NumPy and Pillow about odd headers
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = run(name, Path(folder), int(seed), int(count))
    results["grown_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
