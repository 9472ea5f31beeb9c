"""A source over plain text files: their lines or paragraphs."""

from collections.abc import Sequence
from typing import Literal, SupportsIndex, final

import numpy as np

from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._data.sources.records.text.lines import index_all_lines, index_paragraphs
from gristmill._io.paths import Paths
from gristmill.errors import CorruptFileError, PlanError
from gristmill.options import StorageOptions
from gristmill.types import Indices, Span

_INDEX = {"line": index_all_lines, "paragraph": index_paragraphs}


@final
class TextSource:
    r"""Random access to the lines or the paragraphs, as strings, of text files in UTF-8.

    A line ends with a line feed, with or without a carriage return before it; neither is part of
    the record. Blank lines are records, too. Paragraphs are separated by blank lines, and the lines
    of a paragraph by line feeds. The first use of a file finds its records, and stores their
    locations in an index file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".txt") as file:
    ...     _ = file.write(b"A title\n\nSome words\nand more.\n"), file.flush()
    ...     len(TextSource(file.name)), TextSource(file.name, by="paragraph")[1]
    (4, 'Some words\nand more.')

    Args:
        paths: A path, a URL such as `s3://bucket/train.txt`, a pattern with `*`, or a list of
            them.
        by: What a record is: "line" or "paragraph".
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If `by` is neither of the two.
        FormatError: When records are first read, if a file is not text in UTF-8.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        by: Literal["line", "paragraph"] = "line",
        storage: StorageOptions | None = None,
    ) -> None:
        if by not in _INDEX:
            raise PlanError(f"`by` must be 'line' or 'paragraph', got {by!r}.")
        self._by = by
        self._files = IndexedFiles(
            paths, storage, kind=f"text-{by}s", build=_INDEX[by], count_by="starts"
        )

    def __len__(self) -> int:
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> str:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[str]:
        return gather(self._files.locator, indices, self._read)

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        return f"TextSource({self._files.describe()}, by={self._by!r})"

    def _read(self, number: int, within: Indices) -> list[str]:
        index, file = self._files.index(number), self._files.files[number]
        starts = index["starts"][within]
        encoded = file.read(starts, index["stops"][within])
        records: list[str] = []
        try:
            records.extend(data.removesuffix(b"\r").decode() for data in encoded)
        except UnicodeDecodeError as error:
            row = len(records)
            raise CorruptFileError(
                f"The {self._by} is not UTF-8: {error.reason}. Convert the file, for example with "
                "`iconv -f LATIN1 -t UTF-8`, or skip such records with `SkipErrors`.",
                path=file.ref.path,
                offset=int(starts[row]) + error.start,
                record=int(within[row]),
            ) from None
        if self._by == "paragraph":
            return [record.replace("\r\n", "\n") for record in records]
        return records
