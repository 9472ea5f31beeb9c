"""The format of a ledger: what a run yielded, one line of JSON for each step.

    {"ledger":1,"step":0,"shard":[0,1],"state":{...},"steps":[["Map f","9f..."]],"versions":{...}}
    {"step":0,"state":"5d1c09aa","batch":"01f9c2e4","at":[64]}
    {"step":1,"state":"0b7745c1","batch":"77d0a1b3","at":[128]}

The first line of each *segment* has the state that the next steps follow. A run that is restored,
or that excludes records, begins another segment. If its first step is not after those before, it
replaces them: the training was taken back to a checkpoint.

`state` is a checksum of the position after the step, `batch` one of the bytes of the element.
`at` is the position itself, if it is made of numbers.
"""

import errno
import json
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, cast, final

from gristmill._checkpoint.element_digest import element_digest
from gristmill._checkpoint.state import MAX_SHARDS
from gristmill.errors import CorruptFileError, FormatError, MissingFileError
from gristmill.types import Cursor, Element, JsonObject

VERSION = 1
SUFFIX = ".jsonl"
_FIRST_BYTES = b'{"ledger":'

_MAX_LINE_BYTES = 1 << 28
"""A longer line is corrupt: a state that excludes ten million records is shorter."""


class LedgerStep(NamedTuple):
    """One step of a run."""

    step: int
    state: str
    """The checksum of the position after the step."""
    batch: str
    """The checksum of the element."""
    at: tuple[int, ...] | None
    """The position after the step, if it is made of numbers."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerSection:
    """Steps of a run that followed each other, and the state before the first of them."""

    path: Path
    first_step: int
    shard: tuple[int, int]
    state: JsonObject
    """The state before the first step."""
    digest: str
    """The checksum of the position before the first step."""
    at: tuple[int, ...] | None
    """The position before the first step, if it is made of numbers."""
    code: tuple[tuple[str, str], ...]
    """The steps of the pipeline, each with a fingerprint of its code."""
    versions: Mapping[str, str]
    steps: Sequence[LedgerStep] = ()

    @property
    def end(self) -> int:
        """The number of the step after the last one."""
        return self.steps[-1].step + 1 if self.steps else self.first_step


@final
@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What one shard of a run yielded."""

    path: Path
    segments: tuple[LedgerSection, ...]
    is_cut_off: bool
    """Whether the file ends in the middle of a line."""
    num_replaced: int = field(default=0)
    """The number of steps that were taken back: the run was restored from before them."""

    @property
    def steps(self) -> Iterator[LedgerStep]:
        """All steps, in order."""
        for segment in self.segments:
            yield from segment.steps


def is_ledger(path: Path) -> bool:
    """Return whether a path is a ledger, or a folder that contains some."""
    if path.is_dir():
        return any(path.glob(f"shard_*-of-*{SUFFIX}"))
    if not path.is_file():  # a pipe would block
        return False
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES


def shard_file(folder: Path, shard: tuple[int, int]) -> Path:
    """Return the path of the ledger of a shard in the folder of a run."""
    return folder / f"shard_{shard[0]}-of-{shard[1]}{SUFFIX}"


def find_ledgers(path: Path) -> list[Path]:
    """Return the ledgers in the folder of a run, or the file itself.

    Raises:
        MissingFileError: There is none.
    """
    if path.is_dir():
        found = sorted(path.glob(f"shard_*-of-*{SUFFIX}"), key=_shard_key)
        if not found:
            raise MissingFileError(
                f"The folder contains no ledger: no file is named shard_*-of-*{SUFFIX}.",
                path=str(path),
            )
        return found
    if not path.exists():
        raise MissingFileError("The ledger does not exist.", path=str(path))
    return [path]


def _shard_key(path: Path) -> tuple[list[int], str]:
    digits = "".join(char if char.isdigit() else " " for char in path.name).split()
    return [int(number) for number in digits[::-1]], path.name


def cursor_digest(cursor: Cursor, prefix: int) -> str:
    """Return the checksum of a position. `prefix` is the digest of the stream."""
    numbers = numbers_of(cursor)
    shown = _to_json(cursor) if numbers is None else _list_numbers(numbers)
    return f"{zlib.crc32(shown.encode(), prefix):08x}"


def _list_numbers(numbers: tuple[int, ...]) -> str:
    """Return numbers as JSON, as each step needs them."""
    return f"[{','.join(map(str, numbers))}]"


def stream_digest(state: Mapping[str, Any]) -> int:
    """Return the digest of what the position of a state is a position in: which shard of what."""
    return zlib.crc32(_to_json([state.get("shard"), state.get("taken", [])]).encode())


def numbers_of(cursor: Cursor) -> tuple[int, ...] | None:
    """Return a cursor that is made of numbers; `None` for the state of a stateful step."""
    return tuple(cursor) if all(type(number) is int for number in cursor) else None


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=_as_number)


def _as_number(value: Any) -> object:
    return value.item() if hasattr(value, "item") else repr(value)


@final
class LedgerWriter:
    """Appends to a ledger. Each line is in the file before the next step begins."""

    def __init__(self, path: Path) -> None:
        """Open a ledger, or create it. A last line that was cut off is removed.

        Raises:
            FormatError: The file is something else.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        if path.exists():
            with path.open("r+b") as file:
                _remove_partial_line(file, path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        self._finalizer = weakref.finalize(self, os.close, descriptor)
        self._descriptor = descriptor

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return self._finalizer.alive

    def close(self) -> None:
        """Close the file."""
        self._finalizer()

    @property
    def size(self) -> int:
        """The number of bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def write(self, lines: bytes, start: int) -> None:
        """Write what is missing of some lines. So it can be repeated after Ctrl-C.

        Args:
            lines: The lines.
            start: The size of the file before them.
        """
        missing = lines[self.size - start :]
        if missing and os.write(self._descriptor, missing) != len(missing):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def segment_line(step: int, state: JsonObject, code: object, versions: Mapping[str, str]) -> bytes:
    """Return the line that begins a segment at a state."""
    line = {
        "ledger": VERSION,
        "step": step,
        "shard": state.get("shard"),
        "state": state,
        "steps": code,
        "versions": versions,
    }
    return _to_json(line).encode() + b"\n"


def step_line(step: int, state_digest: str, batch: str, cursor: Cursor) -> bytes:
    """Return the line of a step."""
    numbers = numbers_of(cursor)
    at = "" if numbers is None else f',"at":{_list_numbers(numbers)}'
    return f'{{"step":{step},"state":"{state_digest}","batch":"{batch}"{at}}}\n'.encode()


def _remove_partial_line(file: IO[bytes], path: Path) -> None:
    if not file.readline(64).startswith(_FIRST_BYTES) and os.fstat(file.fileno()).st_size:
        raise not_a_ledger(path)
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65_536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            file.truncate(start + newline + 1)
            return
        end = start
    file.truncate(0)


def batch_digest(element: Element) -> str:
    """Return the checksum of an element as ledgers contain it.

    >>> batch_digest(b"record")
    '63bb0836'
    """
    return f"{element_digest(element):08x}"


def not_a_ledger(path: Path) -> FormatError:
    """Return the error for a file that is not a ledger."""
    return FormatError(
        "The file is not a ledger. Pass one that `keep_ledger` has written.", path=str(path)
    )


def read_ledger(path: Path) -> Ledger:
    """Read a ledger, without the steps that were taken back.

    Raises:
        FormatError: The file is something else.
        CorruptFileError: A line other than the last one is damaged.
    """
    segments: list[LedgerSection] = []
    steps: list[LedgerStep] = []
    num_replaced, offset, is_cut_off = 0, 0, False
    if not path.is_file():  # a pipe would block, and a device may have no end
        raise not_a_ledger(path)
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b"")):
            if not number and not line.startswith(_FIRST_BYTES):
                raise not_a_ledger(path)
            if not line.endswith(b"\n"):
                is_cut_off = True
                break
            try:
                parsed = json.loads(line)
                if "ledger" in parsed:
                    segment = _as_segment(parsed, path)
                    steps = []
                    num_replaced += _take_back(segments, segment.first_step)
                    segments.append(replace(segment, steps=steps))
                else:
                    steps.append(_as_step(parsed, segments[-1].first_step))
            except FormatError:
                raise
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
                raise CorruptFileError(
                    f"Line {number + 1} of the ledger is damaged. Only the last line of a ledger "
                    "may be cut off, when the program is killed.",
                    path=str(path),
                    offset=offset,
                ) from None
            offset += len(line)
    if is_cut_off and not segments:
        raise CorruptFileError("The first line of the ledger is cut off.", path=str(path))
    return Ledger(
        path=path,
        segments=tuple(_without_empty(segments)),
        is_cut_off=is_cut_off,
        num_replaced=num_replaced,
    )


def _without_empty(segments: Sequence[LedgerSection]) -> Iterator[LedgerSection]:
    """Yield the segments that have steps, and one of each stream of which no step was taken."""
    streams = [stream_digest(segment.state) for segment in segments]
    last = {stream: number for number, stream in enumerate(streams)}
    with_steps = {
        stream for stream, segment in zip(streams, segments, strict=True) if segment.steps
    }
    for number, (stream, segment) in enumerate(zip(streams, segments, strict=True)):
        if segment.steps or (stream not in with_steps and last[stream] == number):
            yield segment


def _take_back(segments: list[LedgerSection], step: int) -> int:
    """Remove the steps from `step` on, and return how many there were."""
    count = 0
    while segments and segments[-1].end > step:  # those before it ended earlier
        segment = segments.pop()
        kept = [line for line in segment.steps if line.step < step]
        count += len(segment.steps) - len(kept)
        if kept:
            segments.append(replace(segment, steps=kept))
    return count


def _as_segment(parsed: JsonObject, path: Path) -> LedgerSection:
    if parsed["ledger"] != VERSION:
        raise FormatError(
            f"The ledger has version {str(parsed['ledger'])[:20]}, but this gristmill reads "
            f"{VERSION}. Use the release that wrote it.",
            path=str(path),
        )
    state = cast(JsonObject, parsed["state"])
    cursor = tuple(state["cursor"])
    index, count = map(_as_int, parsed["shard"])
    if not 0 <= index < count <= MAX_SHARDS:
        raise ValueError(index, count)
    return LedgerSection(
        path=path,
        first_step=_as_int(parsed["step"], at_least=0),
        shard=(index, count),
        state=state,
        digest=cursor_digest(cursor, stream_digest(state)),
        at=numbers_of(cursor),
        code=tuple((str(label), str(digest)) for label, digest in parsed["steps"]),
        versions={str(name): str(version) for name, version in parsed["versions"].items()},
    )


def _as_step(parsed: JsonObject, first_step: int) -> LedgerStep:
    at = parsed.get("at")
    numbers = None if at is None else tuple(map(_as_int, at))
    step = _as_int(parsed["step"], at_least=first_step)
    return LedgerStep(step, str(parsed["state"]), str(parsed["batch"]), numbers)


def _as_int(value: object, *, at_least: int | None = None) -> int:
    if type(value) is not int or (at_least is not None and value < at_least):
        raise TypeError(value)
    return value
