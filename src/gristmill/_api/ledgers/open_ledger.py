"""Import the keeper of ledgers when the first one is kept: most programs keep none."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill._base.checks import as_int
from gristmill._engine.run import Run
from gristmill._plan.nodes.base import Node

if TYPE_CHECKING:
    from gristmill._api.ledgers.keeper import LedgerKeeper


def open_ledger(
    folder: str | os.PathLike[str], run: Run, plan: Node, *, step: int | None
) -> "LedgerKeeper":
    """Return what writes the steps of a run to a folder."""
    module: Any = importlib.import_module("gristmill._api.ledgers.keeper")
    number = None if step is None else as_int("step", step)
    return module.LedgerKeeper(Path(folder), run, plan, step=number)
