"""Tables as the parts of files that are read as a whole: row groups, record batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from gristmill.files import FileRef, OpenFiles
from gristmill.sources._fields import as_names


class Part(NamedTuple):
    """Where a piece is: the row groups or batches from `first` to `stop` of a file."""

    file: int
    first: int
    stop: int
    num_rows: int


@final
@dataclass(frozen=True)
class Layout:
    """What is known of a table without reading its data."""

    schema: Any
    """Of pyarrow, with the wanted columns alone."""
    parts: Sequence[Part]
    has_nulls: bool
    """Whether one of its numbers may be null."""
    details: Sequence[Any] = ()
    """What else there is to know of each file."""
    is_mapped: bool = False
    """Whether pieces are memory of a mapped file, so that keeping them takes none."""


def together(
    file: int, counts: Sequence[int], sizes: Sequence[int], *, limit: int
) -> Iterator[Part]:
    """Give the parts of a file: neighbours that take up to `limit` bytes in all are one.

    >>> [part[1:] for part in together(0, [10, 0, 10, 99], [4, 0, 4, 80], limit=10)]
    [(0, 3, 20), (3, 4, 99)]
    """
    first, rows, size = 0, 0, 0
    for number, (count, more) in enumerate(zip(counts, sizes, strict=True)):
        if rows and size + more > limit:
            yield Part(file, first, number, rows)
            first, rows, size = number, 0, 0
        rows, size = rows + count, size + more
    if rows:
        yield Part(file, first, len(counts), rows)


class TableFiles(ABC):
    """The files of a table, and how to read them."""

    def __init__(self, refs: Sequence[FileRef], columns: Sequence[str] | None) -> None:
        self.files = OpenFiles(refs)
        self.columns = as_names(columns)
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "columns": self.columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.files, self.columns = state["files"], state["columns"]
        self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Have nothing open, as when it was made."""

    @abstractmethod
    def survey(self) -> Layout:
        """Find out what the files hold."""

    @abstractmethod
    def read(self, layout: Layout, part: Part) -> list[Any]:
        """Read the wanted columns of a part, each as one Arrow array."""
