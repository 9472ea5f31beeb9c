"""HOW a plan runs."""

from gristmill.execute._stream import Stream
from gristmill.execute._track import Cursor

__all__ = ["Cursor", "Stream"]
