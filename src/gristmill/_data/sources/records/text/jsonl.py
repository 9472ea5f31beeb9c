"""A source over JSON Lines files: one JSON value per line."""

import json
from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np

from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._data.sources.records.text.json_values import parse_values
from gristmill._data.sources.records.text.lines import index_lines
from gristmill._io.file import File
from gristmill._io.paths import Paths
from gristmill.errors import FormatError
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span

_decode = json.JSONDecoder().decode

_FIRST_LINE_BYTES = 65536
"""Only a shorter first line is checked: a value over many lines begins with a short line."""


@final
class JsonLinesSource:
    r"""Random access to the lines of JSON Lines files, each a JSON value.

    Blank lines are not records. The first use of a file finds the ends of its lines, and stores
    them in an index file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
    ...     _ = file.write(b'{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n'), file.flush()
    ...     source = JsonLinesSource(file.name)
    ...     len(source), source[1]
    (2, {'text': 'b', 'label': 0})

    Args:
        paths: A path, a URL such as `s3://bucket/train.jsonl`, a pattern with `*`, or a list of
            them.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        FormatError: When records are first read, if a file is not text with one object in JSON per
            line.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._files = IndexedFiles(paths, storage, kind="lines", build=_index, count_by="starts")

    def __len__(self) -> int:
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        return gather(self._files.locator, indices, self._read)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        return self._files.location(index, "starts")

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        return f"JsonLinesSource({self._files.describe()})"

    def _read(self, number: int, within: Indices) -> list[Element]:
        index = self._files.index(number)
        file = self._files.files[number]
        starts = index["starts"][within]
        lines = file.read(starts, index["stops"][within])
        return parse_values(lines, noun="line", path=file.ref.path, starts=starts, within=within)


def _index(file: File) -> dict[str, Indices]:
    index = index_lines(file)
    starts, stops = index["starts"], index["stops"]
    if len(starts) > 1 and stops[0] - starts[0] < _FIRST_LINE_BYTES:
        _check_first_line(file, int(starts[0]), int(stops[0]))
    return index


def _check_first_line(file: File, start: int, stop: int) -> None:
    """Raise if the first value continues after the end of its line."""
    line = str(file.read_one(start, stop), "utf-8", "replace").rstrip()
    try:
        _decode(line)
    except RecursionError:
        return  # an error when this record is read
    except json.JSONDecodeError as error:
        if error.pos < len(line):
            return  # the line is damaged, which is an error when this record is read
        kind = "array" if line.startswith("[") else "value"
        remedy = (
            "Use `JsonArraySource`." if kind == "array" else "Convert it, for example with `jq -c`."
        )
        raise FormatError(
            f"The file holds a JSON {kind} over several lines, not one value on each line. "
            f"{remedy}",
            path=file.ref.path,
            offset=start,
        ) from None
