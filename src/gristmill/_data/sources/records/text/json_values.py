"""Parse JSON values that an index has located, with errors that contain their location."""

import json
from collections.abc import Sequence

from gristmill.errors import CorruptFileError, FileError
from gristmill.types import Element, Indices

_decode = json.JSONDecoder().decode


def parse_values(
    values: Sequence[bytes], *, noun: str, path: str, starts: Indices, within: Indices
) -> list[Element]:
    """Return the parsed values.

    Args:
        values: Some JSON values.
        noun: What a value is in its file, for the error: "line" or "item".
        path: The file.
        starts: The offset of each value in the file.
        within: The index of each value in the file.

    Raises:
        CorruptFileError: If one of them is not JSON.
    """
    records: list[Element] = []
    try:
        records.extend(map(_parse, values))  # keeps the records before an exception
    except (ValueError, RecursionError) as error:
        row = len(records)
        raise _describe_error(
            error, values[row], noun, path, int(starts[row]), int(within[row])
        ) from None
    return records


def _parse(value: bytes) -> Element:
    return _decode(str(value, "utf-8", "surrogatepass"))  # as `json.loads` decodes bytes


def _describe_error(
    error: ValueError | RecursionError, value: bytes, noun: str, path: str, start: int, record: int
) -> FileError:
    """Return an error with the byte of the file where a value stops being JSON."""
    reason, offset = str(error), 0
    if isinstance(error, UnicodeDecodeError):
        reason, offset = f"not UTF-8: {error.reason}", error.start
    elif isinstance(error, RecursionError):
        reason = "too many arrays and objects inside each other"
    elif isinstance(error, json.JSONDecodeError):
        reason, offset = error.msg, len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    return CorruptFileError(
        f"The {noun} is not JSON ({reason}): {_excerpt(value, offset)}. Correct it, or skip such "
        "records with `SkipErrors`.",
        path=path,
        offset=start + offset,
        record=record,
    )


def _excerpt(value: bytes, offset: int) -> str:
    """Return a few characters of a value around `offset`."""
    first = max(0, offset - 20)
    shown = value[first : first + 40].decode("utf-8", "replace")
    return f"{'...' if first else ''}{shown!r}{'...' if first + 40 < len(value) else ''}"
