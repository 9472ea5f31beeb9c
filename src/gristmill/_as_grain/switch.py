"""`as_grain`: from now on, `import grain` imports gristmill."""

import os
import sys
from types import ModuleType
from typing import final

from gristmill._as_grain.finder import GrainFinder
from gristmill._base.grain.mode import VARIABLE, is_grain_mode
from gristmill.errors import GrainImportedError


def as_grain() -> None:
    """Run the rest of this program on gristmill wherever it imports Grain.

    Call it at the top of a program, before anything imports Grain. From then on `import grain`,
    all its public modules, and the modules of `grain._src` that public programs import, have the
    names of gristmill, in this process, in worker processes, and in every other process that
    inherits the environment and imports gristmill before Grain. Another call does nothing.

    `python -m gristmill.as_grain train.py` does the same without editing the program.

    >>> import gristmill
    >>> gristmill.as_grain()  # doctest: +SKIP
    >>> import grain  # doctest: +SKIP
    >>> grain.MapDataset is gristmill.MapDataset  # doctest: +SKIP
    True

    Raises:
        GrainImportedError: Grain itself has been imported. Objects of both would be mixed.
    """
    if any(isinstance(finder, GrainFinder) for finder in sys.meta_path):
        return
    if any(name.partition(".")[0] == "grain" for name in sys.modules):
        remedy = (
            f"{VARIABLE} takes effect when gristmill is imported, so import it before Grain, let "
            "Python do so with a line in a `.pth` file, as the documentation shows,"
            if is_grain_mode()
            else "Call `gristmill.as_grain()` at the top of the program, before what imports Grain,"
        )
        raise GrainImportedError(
            "gristmill cannot replace Grain, because `grain` has already been imported. "
            f"{remedy} or run `python -m gristmill.as_grain program.py`."
        )
    sys.meta_path.insert(0, GrainFinder())
    os.environ[VARIABLE] = "1"  # for workers: `import gristmill` reads it


@final
class CallableModule(ModuleType):
    """The class of `gristmill.as_grain` if a program imports it as a module.

    `gristmill.as_grain` is a function, and must be a module for `python -m gristmill.as_grain`. An
    `import gristmill.as_grain` replaces the function by the module for the whole process, so a call
    has to work on both.
    """

    def __call__(self) -> None:
        """Call `as_grain`."""
        as_grain()
