"""Wait for a lock that another process holds, and report that in the log."""

import fcntl
import logging
import threading
from pathlib import Path
from typing import IO

LOG_AFTER_S = 5.0
"""A process that waits longer than this for a lock logs it, once."""

logger = logging.getLogger("gristmill")


def lock_exclusively(file: IO[bytes], path: Path) -> None:
    """Wait for an exclusive lock on an open file. It is released when the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        timer = threading.Timer(LOG_AFTER_S, _log_wait, (path,))
        timer.daemon = True
        timer.start()
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        finally:
            timer.cancel()


def _log_wait(path: Path) -> None:
    logger.warning(
        "Waiting for another process, which has held the lock %s for %g s. If it hangs, end it.",
        path,
        LOG_AFTER_S,
    )
