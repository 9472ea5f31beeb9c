"""Which columns of a table are wanted, and whether they are the same in every file."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from gristmill._arrow import load_pyarrow
from gristmill._check import as_list
from gristmill.errors import FormatError, PlanError, PlanTypeError
from gristmill.files import FileRef


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


def select(schemas: Sequence[Any], columns: Sequence[str] | None, refs: Sequence[FileRef]) -> Any:
    """Give the schema of the wanted columns, in the order wanted, the same in all files."""
    names: list[str] = schemas[0].names
    check_wanted("columns", columns or (), names, refs[0].path)
    fields = [schemas[0].field(name).remove_metadata() for name in columns or names]
    chosen = load_pyarrow("Arrow data").schema(fields)
    for schema, ref in zip(schemas[1:], refs[1:], strict=True):
        _check_same(chosen, schema, refs[0], ref, is_all=columns is None)
    return chosen


def check_names(names: Sequence[str], path: str) -> None:
    """Say which columns a dict cannot tell apart."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise FormatError(
            f"There are several columns named {twice[0]!r}, and a record can have one. "
            "Rename the others.",
            path=path,
        )
    if not names:
        raise FormatError("The table has no columns.", path=path)


def check_wanted(name: str, wanted: Iterable[str], names: Sequence[str], path: str) -> None:
    """Say which columns are not there, and which are."""
    missing = [one for one in wanted if one not in names]
    if missing:
        raise PlanError(
            f"`{name}` names {', '.join(map(repr, missing))}, and the columns of "
            f"{os.path.basename(path)!r} are {', '.join(map(repr, names))}."
        )


def _check_same(first: Any, other: Any, home: FileRef, ref: FileRef, *, is_all: bool) -> None:
    """Say where the columns of a file differ from what is wanted of the first."""
    other_names, there = set(other.names), os.path.basename(home.path)
    remedy = "All files of a source must have the same; choose with `columns`."
    for field in first:
        if field.name not in other_names:
            raise FormatError(
                f"There is no column {field.name!r}, which {there!r} has. {remedy}", path=ref.path
            )
        kind = other.field(field.name).type
        if kind != field.type:
            raise FormatError(
                f"Column {field.name!r} is {kind}, and in {there!r} it is {field.type}. {remedy}",
                path=ref.path,
            )
    extra = sorted(other_names.difference(first.names))
    if extra and is_all:
        raise FormatError(
            f"There is a column {extra[0]!r}, which {there!r} does not have. {remedy}",
            path=ref.path,
        )
