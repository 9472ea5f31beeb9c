"""The end of a source that has fewer records than its length.

A stream behind `__getitem__` raises `StopIteration` when it is exhausted. That ends the epoch: the
elements before it are yielded, a last, smaller batch included.
"""

import logging
from typing import final

logger = logging.getLogger("gristmill")


@final
class SourceEndedError(StopIteration):
    """A source raised `StopIteration`. It follows the elements of a block, in place of an error."""


def log_source_end(end: SourceEndedError) -> None:
    """Log which source ended, and where."""
    logger.info("%s", end)
