"""What a program does on SIGTERM, which stays what it was when Ray connects.

Ray installs a handler that prints a stack trace, in place of that of the program, which may save a
checkpoint. In the main thread it then installs another one, and in any other it prints a warning.
"""

import contextlib
import ctypes
import logging
import signal
import sys
from collections.abc import Generator

_MAX_BYTES = 1024
"""More than a `struct sigaction` has on any platform."""


@contextlib.contextmanager
def sigterm_kept() -> Generator[None]:
    """Keep the action on SIGTERM. Works in any thread, where `signal.signal` does not."""
    if sys.platform == "win32":
        yield
        return
    logger = logging.getLogger("ray._private.worker")
    sigaction = ctypes.CDLL(None).sigaction
    action = ctypes.create_string_buffer(_MAX_BYTES)
    sigaction(signal.SIGTERM, None, action)
    logger.addFilter(_is_other_message)
    try:
        yield
    finally:
        logger.removeFilter(_is_other_message)
        sigaction(signal.SIGTERM, action, None)


def _is_other_message(record: logging.LogRecord) -> bool:
    return "SIGTERM handler is not set" not in str(record.msg)
