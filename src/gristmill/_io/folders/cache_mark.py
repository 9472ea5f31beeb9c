"""The mark of a folder that gristmill created as a cache, and may delete files in."""

from pathlib import Path

from gristmill._io.folders.atomic_write import write_atomically
from gristmill._io.folders.safe_files import read_regular_file

MARK_NAME = "CACHEDIR.TAG"
MARK = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# A cache of gristmill, which deletes the oldest files in it. See https://bford.info/cachedir/.\n"
)
"""The content of the mark. Backup programs skip folders with this signature."""


def is_cache(root: Path) -> bool:
    """Return whether a folder has the mark of a cache of gristmill."""
    try:
        return read_regular_file(root / MARK_NAME, max_bytes=len(MARK)) == MARK
    except OSError:
        return False


def mark_as_cache(root: Path) -> None:
    """Write the mark into a folder, which is created if it does not exist."""
    if not is_cache(root):
        write_atomically(root / MARK_NAME, [MARK])
