"""A module that can be called like the function of its name."""

from types import ModuleType
from typing import final

from gristmill._as_grain.switch import as_grain


@final
class CallableModule(ModuleType):
    """The class of `gristmill.as_grain` where something imports it as a module.

    `gristmill.as_grain` is a function, and must be a module for `python -m gristmill.as_grain`. An
    `import gristmill.as_grain` replaces the function by the module for the whole process, so a call
    has to work on both.
    """

    def __call__(self) -> None:
        """Call `as_grain`."""
        as_grain()
