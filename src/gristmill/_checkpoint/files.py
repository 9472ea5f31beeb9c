"""The files that hold states in a checkpoint folder: one for each JAX process."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gristmill._checkpoint.array_state import is_array_state, state_from_arrays
from gristmill._checkpoint.gather import gather_states
from gristmill._checkpoint.state import load_json
from gristmill.errors import StateError
from gristmill.types import JsonObject

SavedState: TypeAlias = bytes | JsonObject
"""The state of an iterator: bytes for a `DataLoader`, a dict for a dataset."""

_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")


def to_json(state: SavedState) -> str:
    """Return a state as the string that is written to a file.

    >>> to_json({"next": 3}), to_json(b'{"position": 3}')
    ('{"next": 3}', '{"position": 3}')
    """
    if isinstance(state, bytes):
        return state.decode()
    return json.dumps(state_from_arrays(state) if is_array_state(state) else state)


def write_state(folder: Path, json_text: str) -> None:
    """Write the state of this process, atomically.

    `folder` may also be an etils path, for example to a bucket, whose files appear as a whole or
    not at all.
    """
    path = folder / _name(*_process())
    if "://" in os.fspath(path):
        path.write_text(json_text)
        return
    unfinished = Path(f"{path}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json_text)
            file.flush()
            os.fsync(file.fileno())  # the name must not reach the disk before the content does
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_state(folder: Path, like: SavedState) -> SavedState:
    """Read the state for this process, as bytes or a dict like `like`.

    If another number of processes wrote the folder, the states of all of them are gathered into one
    that every process of this run can restore.
    """
    parse: Callable[[str], SavedState] = str.encode if isinstance(like, bytes) else load_json
    index, count = _process()
    found = {
        (int(match[1]), int(match[2])): path
        for path in folder.glob("process_*-of-*.json")
        if (match := _NAME.fullmatch(path.name))
    }
    if (index, count) in found:
        return _parsed(found[index, count], parse)
    others = _complete_set(folder, found)
    return gather_states([_parsed(path, parse) for path in others])


def _parsed(path: Path, parse: Callable[[str], SavedState]) -> SavedState:
    try:
        return parse(path.read_text())
    except UnicodeDecodeError as error:
        raise StateError(
            f"The state in {path} is corrupt: byte {error.start} is not UTF-8. Restore an earlier "
            "checkpoint."
        ) from None
    except StateError as error:
        error.add_note(f"The state is in {path}.")
        raise


def _complete_set(folder: Path, found: Mapping[tuple[int, int], Path]) -> list[Path]:
    """Return the files of all processes of one run, in order."""
    wanted = folder / _name(*_process())
    if not found:
        raise StateError(
            f"{wanted} does not exist. Restore from a folder in which the state of an iterator was "
            "saved."
        )
    counts = sorted({count for _, count in found})
    complete = [count for count in counts if all((index, count) in found for index in range(count))]
    if len(complete) != 1:
        there = ", ".join(sorted(path.name for path in found.values()))
        raise StateError(
            f"{wanted} does not exist, and the files in the folder are not those of one complete "
            f"run: {there}. Restore an earlier checkpoint."
        )
    (count,) = complete
    return [found[index, count] for index in range(count)]


def _process() -> tuple[int, int]:
    """Return the index of this JAX process and the number of processes."""
    jax: Any = sys.modules.get("jax")  # a program with several processes has imported it
    return (jax.process_index(), jax.process_count()) if jax else (0, 1)


def _name(index: int, count: int) -> str:
    return f"process_{index}-of-{count}.json"  # as Grain names it
