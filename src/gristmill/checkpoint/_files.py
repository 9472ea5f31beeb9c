"""The files that hold states in the folder of a checkpoint: one for each JAX process."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gristmill.checkpoint._state import gather_states, load_json
from gristmill.errors import StateError

SavedState: TypeAlias = bytes | dict[str, Any]
"""What an iterator tells of its place: bytes of a `DataLoader`, a dict of a dataset."""

_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")


def as_text(state: SavedState) -> str:
    """Give a state as it is written into a file.

    >>> as_text({"next": 3}), as_text(b'{"position": 3}')
    ('{"next": 3}', '{"position": 3}')
    """
    return state.decode() if isinstance(state, bytes) else json.dumps(state)


def write_state(folder: Path, text: str) -> None:
    """Write the state of this process; a process killed on the way leaves no half of a file.

    `folder` may also be a path of etils, to a bucket for instance, where a file is there as a
    whole or not at all.
    """
    path = folder / _name(*_process())
    if "://" in os.fspath(path):
        path.write_text(text)
        return
    unfinished = Path(f"{path}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # the name must not reach the disk before the content does
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_state(folder: Path, like: SavedState) -> SavedState:
    """Read the state for this process, bytes or a dict as `like` is one.

    If another number of processes wrote the folder, the states of all of them are read, and made
    into one that each of these goes on from.
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
    except StateError as error:
        error.add_note(f"It is in {path}.")
        raise


def _complete_set(folder: Path, found: Mapping[tuple[int, int], Path]) -> list[Path]:
    """Give the files of all processes of a run, in order."""
    wanted = folder / _name(*_process())
    if not found:
        raise StateError(
            f"{wanted} does not exist. Restore from a folder that the state of an iterator was "
            "saved to."
        )
    counts = sorted({count for _, count in found})
    complete = [count for count in counts if all((index, count) in found for index in range(count))]
    if len(complete) != 1:
        there = ", ".join(sorted(path.name for path in found.values()))
        raise StateError(
            f"{wanted} does not exist, and what is there is not the whole of one run: {there}. "
            "Restore an earlier checkpoint."
        )
    (count,) = complete
    return [found[index, count] for index in range(count)]


def _process() -> tuple[int, int]:
    """Give the index of this JAX process, and how many there are."""
    jax: Any = sys.modules.get("jax")  # who has several processes has imported it
    return (jax.process_index(), jax.process_count()) if jax else (0, 1)


def _name(index: int, count: int) -> str:
    return f"process_{index}-of-{count}.json"  # as Grain names it
