"""Where a record of a source is stored."""

from typing import NamedTuple, Protocol, SupportsIndex, runtime_checkable


class RecordLocation(NamedTuple):
    r"""The file that holds a record.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from gristmill.sources import JsonLinesSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "x.jsonl").write_text("[1]\n[2]\n")
    ...     where = JsonLinesSource(Path(folder, "x.jsonl")).location(1)
    >>> Path(where.file).name, where.index, where.offset
    ('x.jsonl', 1, 4)
    """

    file: str
    """The address of the file, without credentials."""
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - not the method of tuples
    """The number of the record within the file."""
    offset: int | None = None
    """The byte of the file at which the record starts, if the format has such a byte."""


@runtime_checkable
class SupportsLocation(Protocol):
    """A source that knows the file of each record."""

    def location(self, index: SupportsIndex, /) -> RecordLocation:
        """Return where a record is stored, without reading it."""
        ...
