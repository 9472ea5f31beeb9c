"""The bad records that a stream left out on request, as its state tells them."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that raised, and was left out.

    >>> SkippedRecord(position=7, record=3, step="Map decode", error="ValueError: not a JPEG")
    SkippedRecord(position=7, record=3, step='Map decode', error='ValueError: not a JPEG')
    """

    position: int
    """Its position in the stream."""
    record: int | None
    """Its index in the source; `None` where the sampler cannot tell."""
    step: str
    """What raised."""
    error: str
    """What it raised: type and message."""
