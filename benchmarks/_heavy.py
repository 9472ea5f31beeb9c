"""A transform whose module takes two seconds to import, as large libraries do."""

import importlib
from typing import Any


def load() -> None:
    """Import the module, once in each process."""
    importlib.import_module("benchmarks._heavy_import")


def transform(record: Any) -> Any:
    """Return a record unchanged, after the import."""
    load()
    return record
