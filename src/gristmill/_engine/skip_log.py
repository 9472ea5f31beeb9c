"""Log the bad records that a stream skips: the first ones each, the others by their number."""

import logging
from typing import final

from gristmill._base.format_numbers import count_of
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._printable import printable

logger = logging.getLogger("gristmill")

NUM_LOGGED = 5
"""So many records get a line each. After that, there is a line each time their number doubles."""

MAX_ERROR_SHOWN = 300
"""Longer errors are cut: a message may contain the record."""


@final
class SkipLog:
    """Logs the records that one stream skips, with a bounded number of lines.

    >>> log = SkipLog()
    >>> log.add(SkippedRecord(position=7, record=3, step="Map decode", error="ValueError: no JPEG"))
    >>> log.end()
    """

    def __init__(self) -> None:
        self._count = self._num_logged = 0

    def add(self, skipped: SkippedRecord) -> None:
        """Count a record, and log it or the number so far if a line is due."""
        self._count += 1
        if self._count <= NUM_LOGGED:
            logger.warning("Skipped %s.", _describe(skipped))
        elif self._count == 2 * self._num_logged:
            count = count_of(self._count, "bad record")
            logger.warning("Skipped %s so far, the last one %s.", count, _describe(skipped))
        else:
            return
        self._num_logged = self._count

    def end(self) -> None:
        """Log the number of records, if some were skipped since the last line."""
        if self._count > self._num_logged:
            logger.warning("Skipped %s in all.", count_of(self._count, "bad record"))
        self._count = self._num_logged = 0


def _describe(skipped: SkippedRecord) -> str:
    place = f"at position {skipped.position}" if skipped.record is None else f"{skipped.record}"
    error = skipped.error[:MAX_ERROR_SHOWN]
    return printable(f"record {place}, because {skipped.step} raised {error}")
