"""Log a warning once for each cause, whichever process notices it first."""

import logging

ONCE = "gristmill_once"
"""The attribute of a log record with its cause. A worker's relay sends it along."""

_seen: set[str] = set()


def log_once(key: str, message: str, *arguments: object) -> None:
    """Log a warning, unless one with the same key was logged before.

    Args:
        key: What it is about.
        message: The message, as for `Logger.warning`.
        *arguments: Its arguments.
    """
    if is_first(key):
        logging.getLogger("gristmill").warning(message, *arguments, extra={ONCE: key})


def is_first(key: str) -> bool:
    """Return whether this is the first call with a key in this process."""
    if key in _seen:
        return False
    _seen.add(key)
    return True
