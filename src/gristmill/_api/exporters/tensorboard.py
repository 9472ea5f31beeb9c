"""Exports to TensorBoard: event files of scalars. Writing them needs no package."""

import os
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, final

from gristmill._api.exporters.export import Export, poll
from gristmill._api.exporters.metrics import memory_bytes, worker_memory_bytes
from gristmill._data.sources.records.crc32c import masked_crcs
from gristmill._metrics.stats import HasStats, Stats
from gristmill._printable import printable
from gristmill.errors import PlanError


def to_tensorboard(
    source: HasStats, folder: str | os.PathLike[str], *, every_s: float = 10.0
) -> Export:
    """Write scalars about a loader, an iterator or a feed for TensorBoard.

    Their names begin with `gristmill/`, and their step is the number of elements so far: with
    `feed`, the training step. Rates and shares are those since the last event. TensorBoard shows
    them beside what the training writes to the same folder.

    >>> import tempfile
    >>> from gristmill import load
    >>> loader = load(range(8), num_epochs=1, batch_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with to_tensorboard(loader, folder):
    ...         for batch in loader: pass
    ...     len(list(Path(folder).glob("events.out.tfevents.*")))
    1

    Args:
        source: What to export.
        folder: The folder of the event file, a new one. Missing folders are created.
        every_s: Seconds between two events.

    Returns:
        The export, which ends with `close()`, with a `with` block, or with the source.

    Raises:
        PlanError: The folder cannot be written to, or `every_s` is too small.
        PlanTypeError: The source has no statistics.
    """
    name = f"events.out.tfevents.{int(time.time())}.{os.uname().nodename}.{uuid.uuid4().hex[:8]}"
    writer = EventWriter(Path(folder) / name)
    return poll(source, writer.write, every_s=every_s)


@final
class EventWriter:
    """Writes the scalars of statistics to an event file, which it makes with the first of them.

    Args:
        path: The file.

    Raises:
        PlanError: The folder cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                _write_record(file, _double(1, time.time()) + _bytes(3, b"brain.Event:2"))
        except OSError as error:
            raise PlanError(
                f"The folder {str(path.parent)!r} cannot be written to: {error.strerror}. Pass one "
                "that you may write to."
            ) from error
        self._path = path
        self._before = Stats()
        self._lock = threading.Lock()

    def write(self, stats: Stats) -> None:
        """Append an event, unless nothing has happened since the last one."""
        with self._lock:
            if stats.num_elements == self._before.num_elements:
                return
            values = b"".join(
                _bytes(1, _bytes(1, name.encode()) + _float(2, value))
                for name, value in scalars(stats, self._before)
            )
            event = _double(1, time.time()) + _integer(2, stats.num_elements) + _bytes(5, values)
            with open(self._path, "ab") as file:
                _write_record(file, event)
            self._before = stats


def scalars(stats: Stats, before: Stats) -> Iterator[tuple[str, float]]:
    """Yield the names and values for TensorBoard.

    >>> dict(scalars(Stats(num_elements=4, elapsed_s=2.0, waited_s=1.0), Stats()))[
    ...     "gristmill/waited_share"]
    0.5

    Args:
        stats: The present statistics.
        before: Those of the last event.
    """
    elapsed_s = stats.elapsed_s - before.elapsed_s
    if elapsed_s > 0:
        yield "gristmill/elements_per_s", (stats.num_elements - before.num_elements) / elapsed_s
        yield "gristmill/waited_share", (stats.waited_s - before.waited_s) / elapsed_s
    yield "gristmill/elements", stats.num_elements
    yield "gristmill/blocks_ready", stats.num_blocks_ready
    yield "gristmill/skipped_records", stats.num_skipped
    yield "gristmill/worker_restarts", stats.num_restarts
    yield "gristmill/memory_mb", memory_bytes(stats) / 1e6
    yield "gristmill/worker_memory_mb", worker_memory_bytes(stats) / 1e6
    earlier = {step.name: step.elapsed_s for step in before.steps}
    for step in stats.steps:
        value = step.elapsed_s - earlier.get(step.name, 0.0)
        yield f"gristmill/step_seconds/{printable(step.name)}", value


def _write_record(file: IO[bytes], data: bytes) -> None:
    """Append a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    length_crc, data_crc = masked_crcs([length, data]).astype("<u4")
    file.write(length + length_crc.tobytes() + data + data_crc.tobytes())


def _integer(field: int, value: int) -> bytes:
    """Encode a field of a protocol buffer."""
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
