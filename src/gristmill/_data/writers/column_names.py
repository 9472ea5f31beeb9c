"""Decide whether the name of a column can be the name of a file."""

from collections.abc import Iterable

from gristmill.errors import BatchError

_MAX_NAME_BYTES = 200
"""File systems allow 255; the number of the shard and the suffix come after the name."""

_REFUSED = "/\\*?[]\0"
"""Separators of paths, and the characters of patterns, which the printed code would expand."""


def check_file_names(columns: Iterable[str]) -> None:
    """Raise unless each column can be stored in a file that is named like it.

    Names come from the data, and a name such as `../x` would be a file in another folder.

    >>> check_file_names(["image", "label"])
    """
    seen: dict[str, str] = {}
    for name in columns:
        problem = _find_problem(name)
        other = seen.setdefault(name.casefold(), name)
        if problem is None and other != name:
            problem = f"some file systems do not distinguish it from {other!r}"
        if problem is not None:
            raise BatchError(
                f"A column is named {name!r}, and the `.npy` file of a column is named like it, "
                f"but {problem}. Rename the column, or write Parquet or ArrayRecord files "
                "(`format='parquet'`, `format='array_record'`)."
            )


def _find_problem(name: str) -> str | None:
    """Return why a column name cannot be used as a file name; `None` if it can."""
    if not name:
        return "it is empty"
    if any(character in _REFUSED or not character.isprintable() for character in name):
        return "it contains a character that file names or patterns cannot contain"
    if name.startswith((".", "~", "-")):
        return f"a file name should not start with {name[0]!r}"
    if "-0" in name:
        return "'-0' begins the number of a shard"
    if len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
        return f"it is longer than {_MAX_NAME_BYTES} bytes"
    return None
