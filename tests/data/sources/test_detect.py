import bz2
import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard

from gristmill._data.sources.detect import FORMATS, detect_format, files_of, open_source
from gristmill.errors import FormatError, PlanError

TAR_HEAD = bytes(257) + b"ustar" + bytes(250)
NOISE = np.random.default_rng(0).bytes(500_000)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a", b"\x93NUMPY\x01\x00", "numpy"),
        ("a", b"PK\x03\x04" + bytes(22) + b"\x05\0\0\0x.npyPK", "numpy"),
        ("a.npz", b"PK\x03\x04" + bytes(22) + b"\x05\0\0\0x.txtPK", "numpy"),
        ("a.csv", b"PAR1 and more", "parquet"),
        ("a", b"ARROW1\0\0", "arrow"),
        ("a", b"SQLite format 3\0", "sqlite"),
        ("a", bytes(257) + b"ustar" + bytes(250), "tar"),
        ("a", struct.pack(">HBBI", 0, 8, 1, 3) + b"abc", "idx"),
        ("a.idx.gz", gzip.compress(b"", mtime=0), "idx"),
        ("a.CSV", b"a,b\n", "csv"),
        ("a.tsv", b"a\tb\n", "tsv"),
        ("a.ndjson", b"{}\n", "json_lines"),
        ("a.tfrecord", b"", "tfrecord"),
        ("a", b"MMIDIDX\0\0" + bytes(30), "megatron"),
        ("a.txt", b"some words\n", "text"),
        ("a.json", b' \n[{"a": 1}]', "json_array"),
        ("a.json", b'{"a": 1}\n{"a": 2}\n', "json_lines"),
        ("a.jsonl.gz", gzip.compress(b"{}\n", mtime=0), "json_lines"),
        ("a.csv.bz2", bz2.compress(b"a,b\n"), "csv"),
        ("a.json.xz", lzma.compress(b"[1]"), "json_array"),
        ("a.txt.zst", zstandard.compress(b"words"), "text"),
        ("a.tar.bz2", bz2.compress(TAR_HEAD + NOISE), "tar"),
        ("a.tar.zst", zstandard.compress(TAR_HEAD + NOISE), "tar"),
        ("a.tgz", gzip.compress(bytes(257) + b"ustar" + bytes(250), mtime=0), "tar"),
        ("a.bin", gzip.compress(bytes(257) + b"ustar" + bytes(250), mtime=0), "tar"),
    ],
)
def test_the_content_of_a_file_decides_and_otherwise_its_name(
    tmp_path: Path, name: str, content: bytes, expected: str
):
    assert detect_format(write(tmp_path / name, content)) == expected


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"some notes", "the file seems to be plain text"),
        (b"[1, 2]", "the file seems to be a JSON array"),
        (b'{"a": 1}', "the file seems to be a JSON object, or JSON Lines"),
        (
            gzip.compress(b"some notes", mtime=0),
            "the file seems to be plain text, compressed with gzip",
        ),
        (gzip.compress(b"PAR1 and", mtime=0), "the file seems to be parquet, compressed with gzip"),
        (gzip.compress(b"\0\1\2", mtime=0), "the file seems to be compressed with gzip"),
        (b"%PDF-1.7\n\0", "the file seems to be a PDF document"),
        (
            b"PK\x03\x04" + bytes(22) + b"\x08\0\0\0data.pklPK",
            "the file seems to be a zip archive",
        ),
        ("é".encode() * 300, "the file seems to be plain text"),
        (b"", "the file is empty"),
    ],
)
def test_an_unknown_format_is_an_error_that_describes_the_file_and_lists_the_formats(
    tmp_path: Path, content: bytes, guess: str
):
    path = write(tmp_path / "notes.dat", content)
    message = (
        rf"^The format is not known: {guess}\. Pass it as `format`, one of {', '.join(FORMATS)}, "
        r"or check the file\. \(.*notes\.dat\)$"
    )
    with pytest.raises(FormatError, match=message):
        detect_format(path)


def test_random_bytes_are_not_described(tmp_path: Path):
    path = write(tmp_path / "notes.dat", b"\x00\xff\x01\x02")
    with pytest.raises(FormatError, match=r"^The format is not known\. Pass it "):
        detect_format(path)


def test_texts_are_the_data_of_a_folder_without_other_data(tmp_path: Path):
    write(tmp_path / "README.txt", b"notes")
    write(tmp_path / "a.txt", b"one\ntwo\n")
    write(tmp_path / "b.txt", b"three\n")
    source = open_source(tmp_path)
    assert [source[index] for index in range(len(source))] == ["one", "two", "three"]
    write(tmp_path / "c.jsonl", b"1\n")
    assert detect_format(tmp_path) == "json_lines"


def test_the_data_files_of_a_folder_decide(tmp_path: Path):
    write(tmp_path / "README.md", b"notes")
    write(tmp_path / ".hidden.csv", b"a\n1\n")
    write(tmp_path / "a.jsonl.lines.gristmill-index", b"index")
    data = write(tmp_path / "a.jsonl", b'{"x": 1}\n')
    assert detect_format(tmp_path) == "json_lines"
    assert [ref.path for ref in files_of(tmp_path)] == [str(data)]
    assert open_source(tmp_path)[0] == {"x": 1}


def test_a_folder_of_images_is_an_image_folder(tmp_path: Path):
    write(tmp_path / "cat" / "1.png", b"image")
    assert detect_format(tmp_path) == "image_folder"
    assert open_source(tmp_path)[0] == {"image": b"image", "label": 0}


def test_a_folder_without_data_files_is_an_error(tmp_path: Path):
    write(tmp_path / "README.md", b"notes")
    with pytest.raises(FormatError, match=r"^The folder contains no data files\."):
        detect_format(tmp_path)


def test_npy_shards_in_a_folder_are_columns(tmp_path: Path):
    for number in range(2):
        np.save(tmp_path / f"image-0000{number}-of-00002.npy", np.full((3, 2), number))
        np.save(tmp_path / f"label-0000{number}-of-00002.npy", np.arange(3) + 3 * number)
    source = open_source(tmp_path)
    assert len(source) == 6
    assert source[4]["image"].tolist() == [1, 1]
    assert source[4]["label"] == 4


def test_a_format_can_be_chosen(tmp_path: Path):
    path = write(tmp_path / "a.txt", b"x;y\n1;2\n")
    assert open_source(path, format="csv", columns=["x;y"])[0] == {"x;y": "1;2"}
    with pytest.raises(PlanError, match=r"^`format` must be one of .*, got 'xml'\.$"):
        open_source(path, format="xml")


def test_options_are_checked_against_the_format(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", b"1\n")
    message = r"^`columns` cannot be used with json_lines\. It is for arrow, csv, hdf5, "
    with pytest.raises(PlanError, match=message):
        open_source(path, columns=["a"])
    message = r"^`shape` cannot be used with json_lines\. There is no such option\.$"
    with pytest.raises(PlanError, match=message):
        open_source(path, shape=3)


def test_a_folder_of_several_formats_is_an_error_that_names_them(tmp_path: Path):
    write(tmp_path / "a.csv", b"a,b\n")
    write(tmp_path / "b.csv.gz", gzip.compress(b"a,b\n", mtime=0))
    write(tmp_path / "thumbs.db", b"\0\1")
    assert detect_format(tmp_path) == "csv"
    write(tmp_path / "c.jsonl", b"{}\n")
    message = (
        r"of several formats: a\.csv \(csv\) and c\.jsonl \(json_lines\)\. Pass .* `\*\.jsonl`"
    )
    with pytest.raises(FormatError, match=message):
        detect_format(tmp_path)
