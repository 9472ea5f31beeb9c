"""Which columns of a table are wanted, and whether they are the same in every file."""

import os
from collections.abc import Sequence
from typing import Any

from gristmill._check import as_list
from gristmill.errors import FormatError, PlanError, PlanTypeError
from gristmill.files import FileRef
from gristmill.sources._arrow import load_pyarrow


def as_names(columns: Any) -> list[str] | None:
    """Take the names of columns, each once, or None for all.

    >>> as_names(("label", "image"))
    ['label', 'image']
    """
    if columns is None:
        return None
    names = as_list("columns", columns)
    for name in names:
        if not isinstance(name, str):
            raise PlanTypeError(f"`columns` must hold names, got {name!r}.")
    if not names:
        raise PlanError("`columns` must name at least one column. Leave it out to read all.")
    if len(set(names)) < len(names):
        raise PlanError(f"`columns` must name each column once, got {names}.")
    return names


def select(schema: Any, columns: Sequence[str] | None, path: str) -> Any:
    """Give the schema of the wanted columns, in the order wanted."""
    names: list[str] = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FormatError(
            f"There are several columns named {_listed(twice)}, of which a record can have one. "
            "Rename them.",
            path=path,
        )
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise PlanError(
            f"`columns` names {_listed(missing)}, and {os.path.basename(path)!r} has "
            f"{_listed(names) or 'no columns'}."
        )
    if not names:
        raise FormatError("The table has no columns.", path=path)
    fields = [schema.field(name) for name in columns or names]
    return load_pyarrow("Arrow data").schema([field.remove_metadata() for field in fields])


def check_same(first: Any, other: Any, columns: Sequence[str] | None, refs: Sequence[FileRef]):
    """Say where the schema of the second file differs from what was selected of the first."""
    home, path = os.path.basename(refs[0].path), refs[1].path
    missing = [name for name in first.names if name not in other.names]
    if missing:
        raise FormatError(
            f"There is no column {missing[0]!r}, which {home!r} has. All files of a source must "
            "have the same columns; choose those they have in common with `columns`.",
            path=path,
        )
    extra = [name for name in other.names if name not in first.names]
    if extra and columns is None:
        raise FormatError(
            f"There is a column {extra[0]!r}, which {home!r} does not have. All files of a source "
            "must have the same columns; choose those they have in common with `columns`.",
            path=path,
        )
    for field in first:
        kind = other.field(field.name).type
        if kind != field.type:
            raise FormatError(
                f"Column {field.name!r} is {kind}, and in {home!r} it is {field.type}. All files "
                "of a source must have the same types.",
                path=path,
            )


def told(refs: Sequence[FileRef]) -> str:
    """Say which files a source reads, in the same words wherever they are.

    >>> from gristmill.options import StorageOptions
    >>> ref = FileRef(path="a/b.csv", size=1, version="", is_local=True, storage=StorageOptions())
    >>> told([ref]), told([ref, ref])
    ("<1 file>, 'b.csv'", "<2 files>, 'b.csv', ...")
    """
    first = os.path.basename(refs[0].path)
    return f"<1 file>, {first!r}" if len(refs) == 1 else f"<{len(refs)} files>, {first!r}, ..."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
