"""The files of a table, divided into chunks that are read as a whole."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from gristmill._data.sources.tables.arrow_values import ArrowArray, ArrowSchema
from gristmill._data.sources.tables.columns import as_names
from gristmill._io.file import File, FileRef
from gristmill._io.open_files import OpenFiles, open_file


class ChunkSpec(NamedTuple):
    """A chunk: the row groups or record batches from `first` to `stop` of a file."""

    file: int
    """Number of the file."""
    first: int
    stop: int
    num_rows: int


@final
@dataclass(frozen=True)
class TableLayout:
    """The schema and the chunks of a table, known without reading its data."""

    schema: ArrowSchema
    """The pyarrow schema of the selected columns."""
    chunks: Sequence[ChunkSpec]
    has_nulls: bool
    """Whether one of its numbers may be null."""
    file_details: Sequence[Any] = ()
    """What the implementation of `TableFiles` needs to know about each file."""
    is_mapped: bool = False
    """Whether chunks are memory of a mapped file, so that caching them needs no memory."""


def group_chunks(
    file: int, counts: Sequence[int], sizes: Sequence[int], *, max_bytes: int
) -> Iterator[ChunkSpec]:
    """Yield the chunks of a file: neighbours of up to `max_bytes` in total are one chunk.

    >>> [chunk[1:] for chunk in group_chunks(0, [10, 0, 10, 99], [4, 0, 4, 80], max_bytes=10)]
    [(0, 3, 20), (3, 4, 99)]

    Args:
        file: The number of the file.
        counts: The rows of each row group or record batch.
        sizes: The bytes of each row group or record batch.
        max_bytes: The size of a chunk, unless a single row group or batch is larger.
    """
    first, num_rows, num_bytes = 0, 0, 0
    for number, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        if num_rows and num_bytes + size > max_bytes:
            yield ChunkSpec(file, first, number, num_rows)
            first, num_rows, num_bytes = number, 0, 0
        num_rows, num_bytes = num_rows + count, num_bytes + size
    if num_rows:
        yield ChunkSpec(file, first, len(counts), num_rows)


class TableFiles(ABC):
    """The files of a table, in a format that a subclass reads. Threads may share it.

    Args:
        refs: The files.
        columns: The names of the columns to read, by default all.
        open_ref: How to open a file. Can be pickled.
    """

    def __init__(
        self,
        refs: Sequence[FileRef],
        columns: Sequence[str] | None,
        open_ref: Callable[[FileRef], File] = open_file,
    ) -> None:
        self.files: OpenFiles = OpenFiles(refs, open_ref)
        self.columns: list[str] | None = as_names(columns)
        self.reset()

    def __getstate__(self) -> dict[str, object]:
        return {"files": self.files, "columns": self.columns}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Create the attributes that a pickled copy does not contain, such as open readers."""

    @abstractmethod
    def read_layout(self) -> TableLayout:
        """Read the schema and the chunks from the metadata of the files."""

    def check_unchanged(self, number: int) -> None:
        """Raise if a file has changed. Needed before and after reading a chunk of a mapped file."""
        self.files[number].check_unchanged()

    @abstractmethod
    def read_chunk(self, layout: TableLayout, chunk: ChunkSpec) -> list[ArrowArray]:
        """Read the selected columns of a chunk, each as one Arrow array."""
