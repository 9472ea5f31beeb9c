"""JSON values, one on each line."""

import json
from collections.abc import Sequence
from typing import SupportsIndex, final

import numpy as np

from gristmill._places import gather
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.files import File, Paths
from gristmill.options import StorageOptions
from gristmill.sources._indexed import IndexedFiles
from gristmill.sources._lines import index_lines
from gristmill.types import Element, Indices, Span

_decode = json.JSONDecoder().decode

_FIRST_LINE_BYTES = 65536
"""Values that are spread over many lines begin with a short one."""


@final
class JsonLinesSource:
    r"""Random access to the lines of JSON Lines files, each a JSON value.

    Blank lines are no records. The first use of a file looks for the ends of its lines, and keeps
    what it finds beside the file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
    ...     _ = file.write(b'{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n'), file.flush()
    ...     source = JsonLinesSource(file.name)
    ...     len(source), source[1]
    (2, {'text': 'b', 'label': 0})

    Args:
        paths: A path, an address such as `s3://bucket/train.jsonl`, or a pattern with `*`; or
            several.
        storage: How files that are not on this machine are read.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._shards = IndexedFiles(paths, storage, kind="lines", build=_index, counted_by="starts")

    def __len__(self) -> int:
        return len(self._shards.places)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._shards.places.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        return gather(self._shards.places, indices, self._read)

    def __repr__(self) -> str:  # goes into checkpoints: without the folder, which may be another
        return f"JsonLinesSource({self._shards.tell()})"

    def _read(self, number: int, within: Indices) -> list[Element]:
        index = self._shards.index(number)
        file = self._shards.files[number]
        starts = index["starts"][within]
        lines = file.read(starts, index["stops"][within])
        records: list[Element] = []
        try:
            records.extend(map(_parse, lines))  # what was done before an exception stays in
        except ValueError as error:
            row = len(records)
            raise _explain(
                error, lines[row], file.ref.path, int(starts[row]), int(within[row])
            ) from None
        return records


def _index(file: File) -> dict[str, Indices]:
    index = index_lines(file)
    starts, stops = index["starts"], index["stops"]
    if len(starts) > 1 and stops[0] - starts[0] < _FIRST_LINE_BYTES:
        _check_first_line(file, int(starts[0]), int(stops[0]))
    return index


def _parse(line: bytes) -> Element:
    return _decode(str(line, "utf-8", "surrogatepass"))  # as `json.loads` takes bytes


def _check_first_line(file: File, start: int, stop: int) -> None:
    """Raise where the first value goes on after the end of its line."""
    line = str(file.read_one(start, stop), "utf-8", "replace").rstrip()
    try:
        _decode(line)
    except json.JSONDecodeError as error:
        if error.pos < len(line):
            return  # damaged, which whoever reads that record will be told
        kind = "array" if line.startswith("[") else "value"
        remedy = "jq -c '.[]'" if kind == "array" else "jq -c"
        raise FormatError(
            f"The file holds a JSON {kind} over several lines, not one value on each line. "
            f"Convert it, for instance with `{remedy}`.",
            path=file.ref.path,
            offset=start,
        ) from None


def _explain(error: ValueError, line: bytes, path: str, start: int, record: int) -> FileError:
    """Say at which byte of the file a line is not JSON."""
    reason, place = str(error), 0
    if isinstance(error, UnicodeDecodeError):
        reason, place = f"not UTF-8: {error.reason}", error.start
    elif isinstance(error, json.JSONDecodeError):
        reason, place = error.msg, len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    return CorruptFileError(
        f"The line is not JSON ({reason}): {_shorten(line, place)}. Correct it, or leave such "
        "records out with `SkipErrors`.",
        path=path,
        offset=start + place,
        record=record,
    )


def _shorten(line: bytes, place: int) -> str:
    """Give some of a line, from shortly before the place where it goes wrong."""
    first = max(0, place - 20)
    part = line[first : first + 40].decode("utf-8", "replace")
    return f"{'...' if first else ''}{part!r}{'...' if first + 40 < len(line) else ''}"
