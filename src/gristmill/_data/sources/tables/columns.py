"""Check the names and types of the columns that a source reads from its files."""

import os
from collections.abc import Iterable, Sequence

from gristmill._base.checks import as_list
from gristmill._data.sources.tables.arrow_values import ArrowSchema, load_pyarrow
from gristmill._io.file import FileRef
from gristmill.errors import FormatError, PlanError, PlanTypeError


def as_names(columns: object) -> list[str] | None:
    """Check an argument `columns` and return it as a list, or `None` for all columns.

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


def select(
    schemas: Sequence[ArrowSchema], columns: Sequence[str] | None, refs: Sequence[FileRef]
) -> ArrowSchema:
    """Return the schema of the selected columns, and check that all files agree on it.

    Args:
        schemas: The schema of each file.
        columns: The selected columns in their order, by default all.
        refs: The files, for errors.
    """
    names: list[str] = schemas[0].names
    check_selected("columns", columns or (), names, refs[0].path)
    fields = [schemas[0].field(name).remove_metadata() for name in columns or names]
    selected = load_pyarrow("Arrow data").schema(fields)
    for schema, ref in zip(schemas[1:], refs[1:], strict=True):
        _check_same(selected, schema, refs[0], ref, is_all=columns is None)
    return selected


def check_names(names: Sequence[str], path: str) -> None:
    """Raise if a file has no columns, or two of the same name, which a dict cannot hold."""
    seen: set[str] = set()
    duplicate = next((name for name in names if name in seen or seen.add(name)), None)
    if duplicate is not None:
        raise FormatError(
            f"There are several columns named {duplicate!r}, but a record can have only one. "
            "Rename the others.",
            path=path,
        )
    if not names:
        raise FormatError("The table has no columns.", path=path)


def check_selected(argument: str, selected: Iterable[str], names: Sequence[str], path: str) -> None:
    """Raise if a selected column does not exist.

    Args:
        argument: The argument that selects columns, for the error.
        selected: The names in it.
        names: The columns of the file.
        path: The file, for the error.
    """
    known = set(names)
    missing = [name for name in selected if name not in known]
    if missing:
        raise PlanError(
            f"`{argument}` names {', '.join(map(repr, missing))}, but the columns of "
            f"{os.path.basename(path)!r} are {', '.join(map(repr, names))}."
        )


def _check_same(
    first: ArrowSchema, other: ArrowSchema, first_ref: FileRef, ref: FileRef, *, is_all: bool
) -> None:
    """Raise if a file does not have the columns that are selected from the first file."""
    other_names, first_name = set(other.names), os.path.basename(first_ref.path)
    remedy = "All files of a source must have the same columns. Select common ones with `columns`."
    for field in first:
        if field.name not in other_names:
            raise FormatError(
                f"There is no column {field.name!r}, which {first_name!r} has. {remedy}",
                path=ref.path,
            )
        other_type = other.field(field.name).type
        if other_type != field.type:
            raise FormatError(
                f"Column {field.name!r} is {other_type}, but in {first_name!r} it is "
                f"{field.type}. {remedy}",
                path=ref.path,
            )
    extra = sorted(other_names.difference(first.names))
    if extra and is_all:
        raise FormatError(
            f"There is a column {extra[0]!r}, which {first_name!r} does not have. {remedy}",
            path=ref.path,
        )
