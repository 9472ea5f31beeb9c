"""Load an optional package, or say how to install it."""

import importlib
from types import ModuleType

from gristmill.errors import MissingExtraError


def load_extra(module: str, *, extra: str, wanted_by: str) -> ModuleType:
    """Import `module`, which the extra named `extra` installs.

    >>> load_extra("json", extra="json", wanted_by="this example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the package is there; something it needs is not
        raise MissingExtraError(
            f"{wanted_by} needs the package {module!r}. Install it with "
            f"`pip install gristmill[{extra}]`.",
            name=module,
        ) from None
