"""An entry of the ledger of skipped records, which is part of a state."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that raised an exception and was skipped.

    >>> SkippedRecord(position=7, record=3, step="Map decode", error="ValueError: not a JPEG")
    SkippedRecord(position=7, record=3, step='Map decode', error='ValueError: not a JPEG')
    """

    position: int
    """Its position in the stream."""
    record: int | None
    """Its index in the source; `None` if the sampler does not know it."""
    step: str
    """The step that raised."""
    error: str
    """Type and message of the exception."""
