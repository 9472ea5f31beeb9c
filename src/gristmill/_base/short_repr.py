"""Short representations of options: only what differs from the defaults."""

import dataclasses
from typing import Any


def short_repr(options: Any) -> str:
    """Return the `repr` of a dataclass with the fields that differ from their defaults.

    Functions are shown by their names, because their `repr` has an address in memory. Fields that
    may hold secrets (`repr=False`) are left out.

    >>> from gristmill.options import StorageOptions
    >>> short_repr(StorageOptions(num_retries=3)), short_repr(StorageOptions())
    ('StorageOptions(num_retries=3)', 'StorageOptions()')
    >>> short_repr(StorageOptions(filesystem={"key": "secret"}))
    'StorageOptions()'
    """
    shown = [
        f"{field.name}={show_value(value)}"
        for field in dataclasses.fields(options)
        if field.repr and not _is_default(field, value := getattr(options, field.name))
    ]
    return f"{type(options).__name__}({', '.join(shown)})"


def _is_default(field: "dataclasses.Field[Any]", value: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return value == field.default
    factory = field.default_factory
    return factory is not dataclasses.MISSING and value == factory()


def show_value(value: object) -> str:
    """Return the name of a function, and the `repr` of anything else.

    >>> show_value(len), show_value(None)
    ('len', 'None')
    """
    return str(getattr(value, "__qualname__", None) or repr(value))
