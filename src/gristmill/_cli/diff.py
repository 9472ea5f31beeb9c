"""`gristmill diff`: name the first step at which two runs differ, and why."""

import argparse
import sys
from pathlib import Path

from gristmill._checkpoint.ledger_diff import compare_ledgers
from gristmill._checkpoint.ledger_file import find_ledgers, read_ledger
from gristmill._printable import printable
from gristmill.errors import PlanError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `diff` to its parser."""
    parser.description = (
        "Compare the ledgers of two runs, shard by shard: the first step at which they differ, and "
        "how their pipelines differ. The exit status is 1 if they do."
    )
    parser.add_argument("one", metavar="RUN_A", help="the folder of a run, or a ledger")
    parser.add_argument("other", metavar="RUN_B", help="another one")
    parser.set_defaults(run=_run, flags={})


def _run(arguments: argparse.Namespace) -> int:
    paths, others = find_ledgers(Path(arguments.one)), find_ledgers(Path(arguments.other))
    are_single = len(paths) == len(others) == 1
    if not are_single and [path.name for path in paths] != [path.name for path in others]:
        raise PlanError(
            f"The runs have other shards: {', '.join(path.name for path in paths)} and "
            f"{', '.join(path.name for path in others)}. Compare two ledgers of them."
        )
    differs = False
    for path, other_path in zip(paths, others, strict=True):
        ledger, other = read_ledger(path), read_ledger(other_path)
        difference = compare_ledgers(ledger, other)
        differs |= difference.step is not None
        lines = [f"{path} and {other_path}", *(f"  {line}" for line in difference.lines)]
        lines += [
            f"  {one.path} is cut off in its last line, which was left out"
            for one in (ledger, other)
            if one.is_cut_off
        ]
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    return int(differs)
