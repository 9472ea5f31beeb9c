"""Import optional packages, with an error that names the extra to install."""

import importlib
from types import ModuleType

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
            f'`pip install "gristmill[{extra}]"`.',
            name=module,
        ) from None
