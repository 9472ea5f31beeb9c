"""`gristmill audit`: check that each record of a run came as often as it should."""

import argparse
import sys
from pathlib import Path

from gristmill._api.ledgers.audit import audit
from gristmill._checkpoint.ledger_file import Ledger, find_ledgers, is_ledger, read_ledger
from gristmill._cli.pipelines import PIPELINE_HELP, import_pipeline
from gristmill._cli.state_files import find_states
from gristmill._printable import printable
from gristmill.types import JsonObject


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `audit` to its parser."""
    parser.description = (
        "Check from the ledgers of all shards of a run, or from their states, that each record "
        "came as often as it should. The exit status is 1 if not. Records are not transformed, "
        "and not read unless a step depends on their values."
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="the folder of a run, a ledger, a file with a state, or a checkpoint",
    )
    parser.add_argument("--pipeline", metavar="PIPELINE", required=True, help=PIPELINE_HELP)
    parser.set_defaults(run=_run, flags={"pipeline": "--pipeline"})


def _run(arguments: argparse.Namespace) -> int:
    ledgers: list[Ledger] = []
    states: list[JsonObject] = []
    for name in arguments.runs:
        path = Path(name)
        if is_ledger(path):
            ledgers += map(read_ledger, find_ledgers(path))
        else:
            states += [body for _, body in find_states(path)]
    found = audit(import_pipeline(arguments.pipeline), ledgers, states)
    lines = [*found.notes, *map(str, found.coverage)]
    lines += [f"PROBLEM: {problem}" for problem in found.problems]
    if not found.problems:
        lines.append("Each record came as often as it should.")
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    return int(bool(found.problems))
