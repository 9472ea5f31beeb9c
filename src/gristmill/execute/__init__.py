"""HOW a plan runs."""

from gristmill.execute._open import Settings
from gristmill.execute._stream import Stream

__all__ = ["Settings", "Stream"]
