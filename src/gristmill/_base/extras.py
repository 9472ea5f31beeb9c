"""Import optional packages, with an error that names the extra to install."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from gristmill.errors import MissingExtraError


def load_extra(module: str, *, extra: str, wanted_by: str) -> ModuleType:
    """Import and return `module`.

    Args:
        module: The name of the module, such as `"pyarrow.parquet"`.
        extra: The extra of gristmill that installs it.
        wanted_by: What needs the module: the start of the error message.

    Raises:
        MissingExtraError: If the package is not installed. A failing import inside an installed
            package keeps its own error.

    >>> load_extra("json", extra="json", wanted_by="this example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the package is installed; a dependency of it is not
        raise MissingExtraError(
            f"{wanted_by} needs the package {module!r}. Install it with "
            f"`pip install gristmill[{extra}]`.",
            name=module,
        ) from None


def lazy_attributes(module: str, target: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for `module` that imports some names from `target` on first access.

    `target` may need an extra, which is then neither imported nor required before. The names must
    not be in `__all__`, because a star import would access them.

    Args:
        module: The name of the module that gets the `__getattr__`, for the error message.
        target: The module that defines the names.
        names: The name in `target` for each name in `module`.

    >>> get_attribute = lazy_attributes("shapes", "fractions", {"Ratio": "Fraction"})
    >>> get_attribute("Ratio").__name__
    'Fraction'
    """

    def get_attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(target), names[name])

    return get_attribute
