"""Background threads that end before the interpreter does.

A thread that is in native code when the interpreter exits is killed there. C++ code, such as
PyTorch's, then aborts the whole process ("terminate called without an active exception").
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, final

STOP_TIMEOUT_S = 2.0
"""Limit to the wait at interpreter exit: a function that runs in a thread cannot be stopped."""


@final
class Background(threading.Thread):
    """A daemon thread that the interpreter waits for at exit, for a limited time.

    The object that starts one must stop it with a `weakref.finalize`, which runs when the owner is
    garbage collected or at interpreter exit, whichever comes first.
    """

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), *, name: str):
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.role = name
        """Its first name: a thread has another one while it reads records."""


def _join_all() -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    try:
        for thread in threading.enumerate():
            if isinstance(thread, Background):
                thread.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:
        return  # a second Ctrl-C: the user does not want to wait


# Registered at import, so it runs after all other finalizers: `weakref` calls the newest first.
weakref.finalize(Background, _join_all)
