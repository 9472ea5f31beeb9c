"""Find the records of a WebDataset shard from the names of the files in it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gristmill._data.sources.records.tar.members import Member
from gristmill.errors import FormatError

KEY = "__key__"
"""The name of the item of a record that is not a file."""


class NamedMember(NamedTuple):
    """A file of a record."""

    record: int
    """The number of the record, among those of the members that are given."""
    key: str
    """What the names of all files of the record have in common."""
    field: str
    """The extension, in lower case."""
    member: Member


def name_members(
    members: Iterable[Member], path: str, *, is_whole: bool = True
) -> Iterator[NamedMember]:
    """Yield the files that are part of records.

    Args:
        members: Files of an archive, from the beginning of a record on.
        path: The path of the archive, for errors.
        is_whole: Whether these are all files of the archive.

    Raises:
        FormatError: A record has two files with the same extension, or no file of a whole archive
            is part of a record.
    """
    num_files, record, last_key = 0, -1, None
    used: set[str] = set()
    for member in members:
        num_files += 1
        key, extension = _split_name(member.name)
        if not extension or _is_meta(member.name):
            continue
        if key != last_key:
            record, last_key, used = record + 1, key, {KEY}
        field = extension[1:].lower()
        if field in used:
            raise _duplicate_extension(member, field, path, record)
        used.add(field)
        yield NamedMember(record, key, field, member)
    if is_whole and num_files and record < 0:
        raise FormatError(
            f"None of the {num_files:,} files in the archive is part of a record. Name them "
            "KEY.EXTENSION, such as 000017.jpg and 000017.cls.",
            path=path,
        )


def _split_name(name: str) -> tuple[str, str]:
    """Return the key, and the extension with its dot; both empty if the file is in no record.

    >>> _split_name("train/a.b.jpg"), _split_name("train/README"), _split_name(".hidden.jpg")
    (('train/a', '.b.jpg'), ('', ''), ('', ''))
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    return (name[:dot], name[dot:]) if dot > base else ("", "")


def _is_meta(name: str) -> bool:
    folder = name.partition("/")[0]
    return len(folder) >= 4 and folder.startswith("__") and folder.endswith("__")


def _duplicate_extension(member: Member, field: str, path: str, record: int) -> FormatError:
    if field == KEY:
        problem = f"The extension of {member.name!r} is reserved for the key of the record"
    else:
        problem = (
            f"The record has two files with the extension {field!r}; the second is {member.name!r}"
        )
    return FormatError(
        f"{problem}. Use a different extension for each file of a record.",
        path=path,
        offset=member.offset,
        record=record,
    )
