"""Read records of one ArrayRecord file: one by one where that is faster, else in one call.

The library's call for many records wakes its 64 threads, which takes longer than decoding the
records if they are few and small: 15 microseconds per record for 100 records of 1 kB, where seeking
to each of them takes 4. Threads are faster for large records, and for a file that is not in the
page cache. So the first records of a call are read one by one. If that takes long, the others, and
those of the next calls, are read in one call.
"""

import resource
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, final

MAX_SERIAL_RECORDS = 512
"""Maximum number of records of a call that are read one by one. For more, threads are as fast."""

CHECKED_RECORDS = 8
"""Number of records after which their time is checked. Seeking keeps the interpreter lock, so few
records of a slow disk may be read in this way."""

MAX_RECORD_S = 0.000025
"""Maximum time per record that is read one by one."""

NUM_BULK_CALLS = 32
"""Number of calls that read all records at once after records took more time than that."""

_THIS_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


class LibraryReader(Protocol):
    """The methods of the library's reader that are used here."""

    def num_records(self) -> int: ...
    def read(self, keys: list[int] = ..., /) -> Any: ...
    def seek(self, key: int, /) -> None: ...


@final
class ArrayRecordReader:
    """Reads records of one file. Threads may share it.

    Args:
        open_library: Opens the library's reader.
        can_seek: Whether its options make seeking cheap.
    """

    def __init__(self, open_library: Callable[[], LibraryReader], *, can_seek: bool) -> None:
        self._open_library = open_library
        self._library = open_library()
        self._can_seek = can_seek
        self._num_bulk_calls = 0
        """Number of further calls that read all records at once."""
        self._num_reading = 0
        """Number of threads that read records at once."""
        self._lock = threading.Lock()
        """Held while records are read one by one, which moves the position of the reader."""

    def num_records(self) -> int:
        """Return the number of records of the file."""
        return self._library.num_records()

    def read(self, keys: list[int]) -> list[bytes]:
        """Return the records with these numbers."""
        with self._lock:
            records = self._read_one_by_one(keys) if self._is_serial(len(keys)) else []
            if len(records) == len(keys):
                return records
            library = self._library
            self._num_reading += 1
        try:
            others: list[bytes] = library.read(keys[len(records) :])
        finally:
            with self._lock:
                self._num_reading -= 1
        return records + others if records else others

    def _is_serial(self, num_records: int) -> bool:
        if self._num_bulk_calls:
            self._num_bulk_calls -= 1
            return False
        return self._can_seek and not self._num_reading and num_records <= MAX_SERIAL_RECORDS

    def _read_one_by_one(self, keys: list[int]) -> list[bytes]:
        """Return records, up to one that cannot be read or some that take long."""
        seek, read = self._library.seek, self._library.read
        records: list[bytes] = []
        begin = time.perf_counter()
        cpu, pauses = time.thread_time(), _count_pauses()
        try:
            for first in range(0, len(keys), CHECKED_RECORDS):
                for key in keys[first : first + CHECKED_RECORDS]:
                    seek(key)
                    records.append(read())
                limit = MAX_RECORD_S * len(records)
                if time.perf_counter() - begin > limit and (
                    time.thread_time() - cpu > limit or _count_pauses() > pauses
                ):  # otherwise other programs had the core
                    self._num_bulk_calls = NUM_BULK_CALLS
                    break
        except Exception:  # raised again, with its details, when the others are read at once
            self._library = self._open_library()  # a reader that failed may fail for all records
        return records


def _count_pauses() -> int:
    """Return how often this thread waited, for instance for a disk."""
    if _THIS_THREAD is None:  # not Linux: a slow read counts as one that waited
        return time.perf_counter_ns()
    return resource.getrusage(_THIS_THREAD).ru_nvcsw
