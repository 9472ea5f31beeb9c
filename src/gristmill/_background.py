"""Threads in the background, which end before the interpreter does.

A thread that is in native code when the interpreter ends is killed there. C++ code, such as
PyTorch's, then takes the whole process down ("terminate called without an active exception").
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, final

PATIENCE_SECONDS = 2.0
"""How long the end of the program waits: there is no way to stop a function in a thread."""


@final
class Background(threading.Thread):
    """A thread that does not keep a program from ending, but is waited for when it does.

    Who starts one has it stopped by a `weakref.finalize`, which is also called when the program
    ends: then, or when the owner is gone.
    """

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), *, name: str):
        super().__init__(target=target, args=args, name=name, daemon=True)


def _wait_for_all() -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        for thread in threading.enumerate():
            if isinstance(thread, Background):
                thread.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:
        return  # who asks twice has waited enough


weakref.finalize(Background, _wait_for_all)  # after all others: the last made is called first
