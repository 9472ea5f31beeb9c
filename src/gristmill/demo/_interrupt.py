"""Ctrl-C that waits for a better moment."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_afterwards() -> Generator[None, None, None]:
    """Hold back an interrupt until the block is done, and raise it then.

    Importing jax takes half a second, and an interrupt in the middle of it kills the interpreter
    (seen with jaxlib 0.10: a segmentation fault, or an abort from C++).

    >>> try:
    ...     with interrupts_afterwards():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("finished")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    finished
    interrupted
    """
    if threading.current_thread() is not threading.main_thread():  # gets no signals
        yield
        return
    pending: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        pending.append(number)

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if pending:
        signal.raise_signal(signal.SIGINT)  # whoever handles it now decides
