"""A source over JSON files that hold an array."""

from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np

from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._data.sources.records.text.json_items import index_items
from gristmill._data.sources.records.text.json_values import parse_values
from gristmill._io.paths import Paths
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span


@final
class JsonArraySource:
    """Random access to the items of JSON files that each hold one array.

    The first use of a file finds where its items begin, without parsing them, and stores that in an
    index file. Only the items that are read are parsed. Files may be compressed, see the docs.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
    ...     _ = file.write(b'[{"text": "a, b"}, {"text": "c"}]'), file.flush()
    ...     source = JsonArraySource(file.name)
    ...     len(source), source[0]
    (2, {'text': 'a, b'})

    Args:
        paths: A path, a URL such as `s3://bucket/train.json`, a pattern with `*`, or a list of
            them.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        FormatError: When records are first read, if a file is not text with one array in JSON.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._files = IndexedFiles(
            paths, storage, kind="json-items", build=index_items, count_by="starts"
        )

    def __len__(self) -> int:
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        return gather(self._files.locator, indices, self._read)

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        return f"JsonArraySource({self._files.describe()})"

    def _read(self, number: int, within: Indices) -> list[Element]:
        index, file = self._files.index(number), self._files.files[number]
        starts = index["starts"][within]
        items = file.read(starts, index["stops"][within])
        return parse_values(items, noun="item", path=file.ref.path, starts=starts, within=within)
