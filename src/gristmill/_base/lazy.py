"""Import the names of a public module when they are first used, not when it is imported."""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(
    module: str, imports: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a `__getattr__` and a `__dir__` for `module` (PEP 562).

    A program that uses three names of gristmill imports the modules of these three. A name that
    needs an extra must not be in `__all__`, because a star import accesses all names in it.

    >>> get_attribute, _ = lazy_names("shapes", {"fractions": "Decimal, Fraction as Ratio"})
    >>> get_attribute("Ratio").__name__
    'Fraction'

    Args:
        module: The module that gets both functions.
        imports: The names in each other module, as after `from ... import`. Names in `module`
            itself are its submodules.
    """
    origins: dict[str, tuple[str, str]] = {}
    for origin, names in imports.items():
        for name in names.split(","):
            original, _, alias = name.strip().partition(" as ")
            origins[alias or original] = origin, original

    submodules = {name for name, (origin, _) in origins.items() if origin == module}

    def get_attribute(name: str) -> object:
        if name not in origins:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        origin, original = origins[name]
        if origin == module:
            return importlib.import_module(f"{module}.{original}")
        value = getattr(importlib.import_module(origin), original)
        if module in sys.modules:
            setattr(sys.modules[module], name, value)  # from now on found without this function
        return value

    def list_names() -> list[str]:
        own = vars(sys.modules[module])
        shown = {*own.get("__all__", origins)}  # not the names that need an extra
        return sorted(shown | {name for name in own if name.startswith("_")} | submodules)

    return get_attribute, list_names
