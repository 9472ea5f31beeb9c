"""The import hook that finds the modules of Grain in gristmill."""

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import final

from gristmill._as_grain.modules import EXTRA_NAMES, FACADES, REPLACEMENTS, is_module


@final
class GrainFinder(MetaPathFinder):
    """Finds `grain` and its modules before any other finder does.

    The modules hold no code: each looks its names up in the public modules of gristmill when they
    are first used. All are packages, so that Python asks this finder for every name that
    `from grain... import name` does not find, and the error can name what to use instead.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of Grain, or `None` for all other modules.

        Raises:
            ModuleNotFoundError: gristmill has no replacement for this module or name.
        """
        if fullname.partition(".")[0] != "grain":
            return None
        if not is_module(fullname):
            raise ModuleNotFoundError(_explain_missing(fullname))
        return ModuleSpec(fullname, _GrainLoader(), origin="gristmill", is_package=True)


@final
class _GrainLoader(Loader):
    """Makes a module that looks its names up in gristmill."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        origins = ", ".join(f"`{origin}`" for origin in FACADES.get(name, ()))
        vars(module).update(
            __file__=_file_of(name),
            __doc__=f"`{name}`, as far as {origins or 'gristmill'} has it.",
            __getattr__=partial(_find_name, name),
            __dir__=partial(_list_names, name),
            __all__=_public_names(name),
        )


def _find_name(module: str, name: str) -> object:
    """Return what a module of Grain has under a name, and store it in the module."""
    if is_module(f"{module}.{name}"):
        return importlib.import_module(f"{module}.{name}")
    value = _look_up(module, name)
    setattr(sys.modules[module], name, value)
    return value


def _look_up(module: str, name: str) -> object:
    extra = EXTRA_NAMES.get(module, {}).get(name)
    if extra is not None:
        origin, _, attribute = extra.partition(":")
        return getattr(importlib.import_module(origin), attribute)
    if not name.startswith("__"):  # `__path__` and the like are those of the module itself
        for origin in FACADES.get(module, ()):
            try:
                return getattr(importlib.import_module(origin), name)
            except AttributeError:
                continue
        raise AttributeError(_explain_missing(f"{module}.{name}"))
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _file_of(module: str) -> str | None:
    """Return the file of the first module of gristmill that has the names of a module of Grain."""
    return importlib.import_module(next(iter(FACADES.get(module, ())), "gristmill")).__file__


def _public_names(module: str) -> list[str]:
    names = {name for name in EXTRA_NAMES.get(module, {}) if not name.startswith("_")}
    for origin in FACADES.get(module, ()):
        names |= {name for name in importlib.import_module(origin).__all__ if name != "as_grain"}
    return sorted(names)


def _list_names(module: str) -> list[str]:
    return sorted({*vars(sys.modules[module]), *_public_names(module)})


def _explain_missing(fullname: str) -> str:
    """Return the message for a module or a name that does not exist, with what to use instead."""
    name = fullname.rpartition(".")[2]
    instead = REPLACEMENTS.get(name)
    if instead is None:
        home = _public_homes().get(name)
        instead = "the public names of `grain`" if home is None else f"`{home}`"
    return f"gristmill, which replaces Grain in this process, has no `{fullname}`. Use {instead}."


def _public_homes() -> dict[str, str]:
    """Return where each public name of Grain is, with the shortest spelling of its module."""
    modules = sorted((module for module in FACADES if "._src" not in module), key=len, reverse=True)
    return {name: f"{module}.{name}" for module in modules for name in _public_names(module)}
