"""Read the `index.json` of a folder of shards, which may come from anyone."""

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, TypeVar

from gristmill._io.file import FileRef
from gristmill._io.open_files import open_file
from gristmill.errors import FormatError

INDEX_NAME = "index.json"
_MAX_INDEX_BYTES = 2**28

T = TypeVar("T")


def read_shard_index(index: FileRef, content: str, check: Callable[[Any], T]) -> T:
    """Return what an index contains, after a check of its form.

    Args:
        index: The file.
        content: What it should be an index of, for messages.
        check: Returns what is wanted of the JSON value. Raises `ValueError`, `KeyError` or
            `TypeError` if the value has another form.

    Raises:
        FormatError: It has another form.
    """
    try:
        if index.size > _MAX_INDEX_BYTES:
            raise ValueError(f"it has {index.size:,} bytes")
        return check(json.loads(open_file(index).read_one(0, index.size)))
    except FormatError as error:
        error.path = index.path
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"The file is not an index of {content} ({type(error).__name__}: {error}). Pass a "
            "folder that the library of the format has written.",
            path=index.path,
        ) from None


def check_shard(name: Any, count: Any) -> None:
    """Check the name and the number of records of a shard.

    Args:
        name: The name, which must not lead out of the folder of the index.
        count: The number of records, which has 4 bytes in a shard.

    Raises:
        ValueError: One of them cannot be.
        TypeError: The name is not a string.
    """
    path = PurePosixPath(name)
    # Two colons separate the addresses of a chain of stores.
    is_outside = path.is_absolute() or ".." in path.parts or "\\" in name or "::" in name
    if not name or is_outside:
        raise ValueError(f"a shard is named {name!r}")
    if type(count) is not int or not 0 <= count < 2**32:
        raise ValueError("the number of records of a shard is not a count")
