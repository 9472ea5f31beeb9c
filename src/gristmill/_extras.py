"""Load an optional package, or say how to install it."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from gristmill.errors import MissingExtraError


def load_extra(module: str, *, extra: str, wanted_by: str) -> ModuleType:
    """Import `module`, which the extra named `extra` installs.

    >>> load_extra("json", extra="json", wanted_by="this example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the package is there; something it needs is not
        raise MissingExtraError(
            f"{wanted_by} needs the package {module!r}. Install it with "
            f"`pip install gristmill[{extra}]`.",
            name=module,
        ) from None


def names_on_demand(module: str, home: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Give the `__getattr__` of a module that has some names only once they are asked for.

    Their home needs an extra, which is thus neither loaded nor needed before. They cannot be in
    `__all__`: a star import would ask for them.

    >>> find = names_on_demand("shapes", "fractions", {"Ratio": "Fraction"})
    >>> find("Ratio").__name__
    'Fraction'
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), names[name])

    return find
