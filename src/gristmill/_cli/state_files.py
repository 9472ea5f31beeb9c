"""Find the states of iterators in files and checkpoints."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from gristmill._checkpoint.array_state import is_array_state, state_from_arrays
from gristmill._checkpoint.grain_state import is_grain_state
from gristmill._checkpoint.ledger_file import is_ledger
from gristmill._checkpoint.state import load_json, parse_body
from gristmill._io.folders.safe_files import read_regular_file
from gristmill.errors import MissingFileError, StateError
from gristmill.types import JsonObject

_MAX_BYTES = 1 << 28
"""A larger file is not read: a state that excludes ten million records is smaller."""


def find_states(path: Path) -> Iterator[tuple[Path, JsonObject]]:
    """Yield the states of a file, or of all files below a folder, in order of their steps.

    Orbax has a folder for each step, and Grain and gristmill a file for each process in it. States
    that Grain has written are returned as they are.

    Raises:
        MissingFileError: The path does not exist.
        StateError: There is no state, or a file contains something else.
    """
    if path.is_dir():
        files = sorted(path.rglob("process_*-of-*.json"), key=_numbers_first)
        if not files and is_ledger(path):
            raise _ledger_error(path)
        if not files:
            raise StateError(
                f"{path} contains no state of an iterator: there is no file "
                "process_*-of-*.json below it."
            )
    elif path.exists():
        files = [path]
    else:
        raise MissingFileError("The file does not exist.", path=str(path))
    for file in files:
        try:
            yield file, _read(file)
        except StateError as error:
            error.add_note(f"The state is in {file}.")
            raise


def read_state_file(path: Path) -> bytes:
    """Return the content of a file. A pipe or a device is an error, as they may have no end.

    Raises:
        StateError: It cannot be read.
    """
    try:
        if is_ledger(path):
            raise _ledger_error(path)
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise StateError(f"The file has {size:,} bytes. A state has at most {_MAX_BYTES:,}.")
        return read_regular_file(path.resolve(), max_bytes=_MAX_BYTES)
    except OSError as error:
        reason = error.strerror or str(error).rstrip(".")
        raise StateError(f"The state cannot be read: {reason}. Check the path.") from error


def _read(path: Path) -> JsonObject:
    content = read_state_file(path)
    body: Any = load_json(content.decode(errors="replace"))
    if is_grain_state(body):
        return body
    if isinstance(body, dict) and is_array_state(cast(JsonObject, body)):
        body = state_from_arrays(cast(JsonObject, body))
    parse_body(cast(object, body))
    return cast(JsonObject, body)


def _ledger_error(path: Path) -> StateError:
    return StateError(
        f"{path} is the ledger of a run, not a state. Compare it with that of another run by "
        "`gristmill diff`, account for its records by `gristmill audit`, or compare it with a "
        "pipeline by `gristmill replay --ledger`."
    )


def _numbers_first(path: Path) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers in names by value."""
    tokens = re.split(r"(\d+)", str(path))
    return [(not token.isdigit(), int(token) if token.isdigit() else 0, token) for token in tokens]
