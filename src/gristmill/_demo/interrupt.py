"""Delay Ctrl-C until a block of code has finished."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delay_interrupts() -> Generator[None, None, None]:
    """Delay a `KeyboardInterrupt` until the end of the `with` block.

    Importing jax takes half a second, and an interrupt during the import kills the interpreter
    (seen with jaxlib 0.10: a segmentation fault, or an abort from C++).

    >>> try:
    ...     with delay_interrupts():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("finished")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    finished
    interrupted
    """
    if threading.current_thread() is not threading.main_thread():  # receives no signals
        yield
        return
    pending: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        pending.append(number)

    previous = signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if pending:
        signal.raise_signal(signal.SIGINT)  # calls the previous handler
