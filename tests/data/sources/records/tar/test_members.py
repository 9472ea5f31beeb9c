import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records.tar.members import Member, read_members
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FormatError

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


class CountingFile(File):
    """A file that counts the bytes read, and may pretend to be in a store."""

    def __init__(self, file: File, *, chunk: int | None = None) -> None:
        self._file = file
        self._chunk = chunk
        self.num_bytes = 0

    @property
    def ref(self):
        return replace(self._file.ref, is_local=self._chunk is None)

    def read(self, starts: Any, stops: Any) -> list[bytes]:
        self.num_bytes += sum(stops) - sum(starts)
        return self._file.read(starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        assert self._chunk is not None
        data = self._file.read_one(start, self.ref.size if stop is None else stop)
        return (data[first : first + self._chunk] for first in range(0, len(data), self._chunk))

    def local_path(self) -> Path:
        return self._file.local_path()

    def check_unchanged(self) -> None:
        self._file.check_unchanged()


def opened(path: Path) -> File:
    return OpenFiles(find_files(path))[0]


def members_of(path: Path) -> list[Member]:
    return list(read_members(opened(path)))


def by_tarfile(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path, "r:") as archive:
        return [(m.name, m.offset_data, m.offset_data + m.size) for m in archive if m.isreg()]


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(data))


def archive_of(path: Path, *names: str, size: int = 100, form: int = tarfile.PAX_FORMAT) -> bytes:
    with tarfile.open(path, "w", format=form) as archive:
        for name in names:
            add(archive, name, bytes(range(1, 251))[:1] * size)
    return path.read_bytes()


NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(NAMES | st.integers(90, 300).map("n".__mul__), st.integers(0, 1600)), max_size=8
    ),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.integers(1, 5000),
)
def test_files_are_where_tarfile_finds_them(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, int]], form: int, chunk: int
):
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    with tarfile.open(path, "w", format=form) as archive:
        for name, size in files:
            add(archive, name, b"\xff" * size)

    expected = by_tarfile(path)
    for file in (opened(path), CountingFile(opened(path), chunk=chunk)):
        assert [(m.name, m.start, m.stop) for m in read_members(file)] == expected


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["a" * 99, "a" * 100, "b" * 60 + "/" + "a" * 99], ids=len)
def test_long_names_are_read_in_any_format(tmp_path: Path, form: int, name: str):
    archive_of(tmp_path / "a.tar", name, form=form)
    assert [member.name for member in members_of(tmp_path / "a.tar")] == [name]


def test_a_pax_header_applies_to_one_file_and_a_global_one_to_all(tmp_path: Path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", pax_headers={"comment": "for all"}) as archive:
        add(archive, "a", b"12", pax_headers={"path": "other", "mtime": "1.5"})
        add(archive, "b", b"3")
    assert [(m.name, m.stop - m.start) for m in members_of(path)] == [("other", 2), ("b", 1)]


def test_a_size_in_a_pax_header_overrides_that_in_the_header(tmp_path: Path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "a", b"x" * 700, pax_headers={"size": "700"})
        add(archive, "b", b"y")
    data = bytearray(path.read_bytes())
    header = data[1024:1536]  # of `a`, after its pax header: set its size to 0
    header[124:136] = b"00000000000\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[1024:1536] = header
    path.write_bytes(data)
    assert [(m.name, m.start, m.stop) for m in members_of(path)] == by_tarfile(path)
    assert members_of(path)[0].stop - members_of(path)[0].start == 700


def test_large_sizes_in_binary_are_read(tmp_path: Path):
    path = tmp_path / "a.tar"
    size = 9 * 2**30
    with path.open("wb") as file:  # sparse: it needs no space on the disk
        member = tarfile.TarInfo("a.bin")
        member.size = size
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(512 + size + 1024)
    assert members_of(path) == [Member("a.bin", 0, 512, 512 + size)]


def test_the_contents_of_files_are_not_read(tmp_path: Path):
    archive_of(tmp_path / "a.tar", *map(str, range(20)), size=1_000_000)
    file = CountingFile(opened(tmp_path / "a.tar"))
    assert len(list(read_members(file))) == 20
    assert file.num_bytes < 2_000_000


def test_old_archives_are_read(tmp_path: Path):
    path = tmp_path / "a.tar"
    data = bytearray(archive_of(path, "a", form=tarfile.USTAR_FORMAT))
    data[257:512] = bytes(255)  # no magic, and no fields after it
    data[0:4] = "é".encode() + b"\0\0"
    data[156:157] = b"\0"
    data[148:156] = b" " * 8
    signed = sum(data[:512]) - 256 * sum(byte > 127 for byte in data[:512])
    data[148:156] = b"%06o\0 " % signed
    path.write_bytes(data)
    assert [(m.name, m.start, m.stop) for m in members_of(path)] == by_tarfile(path)


def fix_checksum(data: bytearray) -> bytes:
    """Correct the checksum of the first header."""
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


def test_a_checksum_above_65521_is_verified(tmp_path: Path):
    path = tmp_path / "a.tar"
    data = bytearray(archive_of(path, "a", form=tarfile.USTAR_FORMAT))
    data[0:100] = b"\xff" * 100
    data[345:500] = b"\xff" * 155
    path.write_bytes(fix_checksum(data))
    assert sum(data[:512]) > 65521
    assert [(m.name, m.start, m.stop) for m in members_of(path)] == by_tarfile(path)


def test_the_size_in_the_header_of_a_link_is_ignored(tmp_path: Path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, "link", type=tarfile.LNKTYPE, linkname="a.x")
        add(archive, "a.x", b"1")
    data = bytearray(path.read_bytes())
    data[124:136] = b"00000001000\0"
    path.write_bytes(fix_checksum(data))
    assert [(m.name, m.start, m.stop) for m in members_of(path)] == [("a.x", 1024, 1025)]
    assert by_tarfile(path) == [("a.x", 1024, 1025)]


def test_a_folder_of_an_old_writer_is_not_a_file(tmp_path: Path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, "folder/", type=tarfile.AREGTYPE)
        add(archive, "folder/a.x", b"1")
    assert [(m.name, m.start, m.stop) for m in members_of(path)] == by_tarfile(path)
    assert len(members_of(path)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_an_archive_truncated_anywhere_is_an_error(tmp_path: Path, form: int):
    path = tmp_path / "a.tar"
    second = "b" * 120 if form != tarfile.USTAR_FORMAT else "b.x"
    complete = archive_of(path, "a.x", second, form=form)
    end = len(complete.rstrip(b"\x00"))
    end += -end % 512
    for length in range(512, end + 1, 97):
        path.write_bytes(complete[:length])
        with pytest.raises(CorruptFileError, match=r"it is truncated\. Copy it again\.") as caught:
            members_of(path)
        assert caught.value.offset is not None
        assert caught.value.offset % 512 == 0


def test_an_archive_that_ends_inside_a_file_is_an_error_with_its_offset(tmp_path: Path):
    path = tmp_path / "a.tar"
    path.write_bytes(archive_of(path, "a.x", "b.x", size=2000)[:3500])
    message = (
        r"^The archive ends at byte 3,500, inside a file of 2,000 bytes: it is truncated\. Copy "
        r"it again\. \(.*a\.tar, byte 2,560\)$"
    )
    with pytest.raises(CorruptFileError, match=message):
        members_of(path)


@pytest.mark.parametrize("length", [0, 1024])
def test_an_archive_without_an_end_marker_is_an_error(tmp_path: Path, length: int):
    path = tmp_path / "a.tar"
    path.write_bytes(archive_of(path, "a.x")[:length])
    message = (
        r"^The archive ends without the blocks of zeros that mark its end: it is truncated\. "
        rf"Copy it again\. \(.*, byte {length:,}\)$"
    )
    with pytest.raises(CorruptFileError, match=message):
        members_of(path)


def test_one_block_of_zeros_is_an_end_marker(tmp_path: Path):
    path = tmp_path / "a.tar"
    path.write_bytes(archive_of(path, "a.x")[:1536])
    assert len(members_of(path)) == 1


def test_concatenated_archives_are_an_error(tmp_path: Path):
    path = tmp_path / "a.tar"
    path.write_bytes(archive_of(path, "a.x") + archive_of(path, "b.x"))
    message = (
        r"^There is more data after the end of the archive\. If archives were concatenated, pass "
        r"them one by one, or join them with `tar --concatenate`\. Otherwise a part of the "
        r"archive is zeros: copy it again\. \(.*, byte 1,024\)$"
    )
    with pytest.raises(CorruptFileError, match=message):
        members_of(path)


def test_a_damaged_header_is_an_error(tmp_path: Path):
    path = tmp_path / "a.tar"
    data = bytearray(archive_of(path, "a.x", "b.x"))
    data[1024] ^= 1
    path.write_bytes(data)
    message = (
        r"^The archive is damaged: the checksum of a header does not match\. Copy it again\. "
        r"\(.*, byte 1,024\)$"
    )
    with pytest.raises(CorruptFileError, match=message):
        members_of(path)


@pytest.mark.parametrize("field", [b"zzzzzzzzzzz\0", b"\xff" * 12])
def test_a_size_that_is_not_a_number_is_an_error(tmp_path: Path, field: bytes):
    path = tmp_path / "a.tar"
    data = bytearray(archive_of(path, "a.x"))
    data[124:136] = field
    path.write_bytes(fix_checksum(data))
    with pytest.raises(CorruptFileError, match=r"damaged: the size of a file is not a number\. "):
        members_of(path)


@pytest.mark.parametrize(
    "content", [b"12 path=x", b"99 path=x\n", b"0 path=x\n", b"x", b"-5 path\n"]
)
def test_a_pax_header_that_cannot_be_parsed_is_an_error(tmp_path: Path, content: bytes):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, "a.x", content, type=tarfile.XHDTYPE)
        archive.fileobj.write(content + bytes(512 - len(content)))  # pyright: ignore[reportOptionalMemberAccess]
        archive.offset += 512
        add(archive, "a.x")
    with pytest.raises(CorruptFileError, match=r"damaged: a pax header cannot be parsed\. "):
        members_of(path)


@pytest.mark.parametrize("is_gnu", [True, False])
def test_sparse_files_are_an_error(tmp_path: Path, is_gnu: bool):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        if is_gnu:
            add(archive, "a.x", type=tarfile.GNUTYPE_SPARSE)
        else:
            add(archive, "a.x", pax_headers={"GNU.sparse.major": "1"})
    message = (
        r"^The archive holds a sparse file, which does not store all of its bytes\. Create the "
        r"archive again without `--sparse`\. \("
    )
    with pytest.raises(FormatError, match=message):
        members_of(path)


@pytest.mark.parametrize("data", [b"not an archive", b"not an archive" * 200, b"\x80" * 2000])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path: Path, data: bytes):
    (tmp_path / "a.tar").write_bytes(data)
    message = (
        r"^The file is not a tar archive\. Pass archives written by `tar` or by WebDataset\. "
        r"\(.*, byte 0\)$"
    )
    with pytest.raises(FormatError, match=message):
        members_of(tmp_path / "a.tar")


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_compressed_archive_is_an_error_with_the_command_that_decompresses_it(
    tmp_path: Path, size: int
):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(archive_of(tmp_path / "a.tar", *map(str, range(size // 10)))))
    with pytest.raises(FormatError, match=r"^The file is compressed with gzip, .*`gunzip`"):
        members_of(path)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_damage_is_an_error_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: Any):
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    damaged = bytearray(archive_of(path, "a.x", "b" * 130, "c.x"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 5000))
        damaged[at] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        for member in members_of(path):
            assert 0 <= member.start <= member.stop <= len(damaged)
    except (CorruptFileError, FormatError):
        pass
