"""Read WebDataset shards from front to back, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from gristmill._data.sources.records.tar.members import ForwardReader, read_members
from gristmill._data.sources.records.tar.names import KEY, name_members
from gristmill._io.decompress import open_decompressed
from gristmill._io.file import File, FileRef, describe_files
from gristmill._io.open_files import OpenFiles
from gristmill.types import Element

_BLOCK_BYTES = 2**20
"""How many bytes of records are yielded at a time."""

_ALIGNMENT = 512
"""Each file in an archive begins at a multiple of this."""

Record: TypeAlias = dict[str, Element]
Position: TypeAlias = list[int]


@final
@dataclass(frozen=True)
class TarStream:
    """The records of archives. A position is the number of one, and a byte where a header begins.

    Nothing but the bytes from the position on is read, and nothing is stored.
    """

    refs: tuple[FileRef, ...]

    @property
    def start(self) -> Position:
        """The position before the first record."""
        return [0, 0]

    def read_from(
        self, position: Sequence[int], /
    ) -> Iterator[tuple[list[Record], Callable[[int], Position]]]:
        """Yield blocks of the records from `position` on.

        Yields:
            A block of records, and a function that returns the position after the first n of them.
        """
        number, offset = position
        files = OpenFiles(self.refs, open_decompressed)
        while number < len(self.refs):
            for records, ends in _read_blocks(files[number], offset):
                yield records, _position_after(number, [offset, *ends])
                offset = ends[-1]
            number, offset = number + 1, 0

    def __repr__(self) -> str:
        return f"Tar({describe_files(self.refs)})"


def _position_after(number: int, ends: Sequence[int]) -> Callable[[int], Position]:
    return lambda count: [number, ends[count]]


def _read_blocks(file: File, offset: int) -> Iterator[tuple[list[Record], list[int]]]:
    """Yield blocks of the records of an archive, and the bytes where they end.

    What was read before an error is yielded before it is raised.
    """
    records: list[Record] = []
    ends: list[int] = []
    num_bytes = 0
    try:
        for record, end in _read_records(file, offset):
            records.append(record)
            ends.append(end)
            num_bytes += end - offset
            offset = end
            if num_bytes >= _BLOCK_BYTES:
                yield records, ends
                records, ends, num_bytes = [], [], 0
    except Exception:
        if records:
            yield records, ends
        raise
    if records:
        yield records, ends


def _read_records(file: File, offset: int) -> Iterator[tuple[Record, int]]:
    """Yield the records starting at a byte, each with the byte where its last file ends."""
    reader = ForwardReader(file, offset)
    members = name_members(read_members(file, reader, offset), file.ref.path, is_whole=offset == 0)
    record: Record = {}
    current, end = 0, offset
    for number, key, field, member in members:
        if number != current:
            yield record, end
            record, current = {}, number
        record.setdefault(KEY, key)
        record[field] = reader.read(member.start, member.stop - member.start)
        end = member.stop + -member.stop % _ALIGNMENT
    if record:
        yield record, end
