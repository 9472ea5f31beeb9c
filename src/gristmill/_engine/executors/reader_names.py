"""Names of the threads that read records, as in Grain: `grain-prefetch_0` and so on.

Sources parse the name of the current thread to choose one of several streams, so two threads that
read at the same time never have the same number, and numbers are below `num_threads`. A thread has
such a name only while it reads.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from gristmill._engine.blocks.block_result import BlockResult

_PREFIX = "grain-prefetch_"


@contextmanager
def named_reader(number: int) -> Generator[None]:
    """Set the name of the current thread to that of a reader, while the context lasts."""
    thread = threading.current_thread()
    name = thread.name
    thread.name = f"{_PREFIX}{number}"
    try:
        yield
    finally:
        thread.name = name


def with_reader_name(
    read: Callable[[range], BlockResult], *, num_threads: int
) -> Callable[[range], BlockResult]:
    """Return a function that reads under the name of reader 0, in a thread that is not a reader.

    With `num_threads=0` Grain reads in the thread of the consumer, under its own name.
    """
    if num_threads < 1:
        return read

    def read_named(positions: range) -> BlockResult:
        if threading.current_thread().name.startswith(_PREFIX):
            return read(positions)
        with named_reader(0):
            return read(positions)

    return read_named
