"""HOW a plan runs."""

from gristmill.execute._fetch import fetch_one, open_fetch
from gristmill.execute._open import Settings, with_outer_workers
from gristmill.execute._pack_and_batch import pack_and_batch
from gristmill.execute._run import Run
from gristmill.execute._stream import Stream

__all__ = [
    "Run",
    "Settings",
    "Stream",
    "fetch_one",
    "open_fetch",
    "pack_and_batch",
    "with_outer_workers",
]
