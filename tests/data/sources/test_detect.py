import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from gristmill._data.sources.detect import FORMATS, detect_format, files_of, open_source
from gristmill.errors import FormatError, PlanError


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a", b"\x93NUMPY\x01\x00", "numpy"),
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
    ],
)
def test_the_content_of_a_file_decides_and_otherwise_its_name(
    tmp_path: Path, name: str, content: bytes, expected: str
):
    assert detect_format(write(tmp_path / name, content)) == expected


def test_an_unknown_format_is_an_error_that_lists_the_formats(tmp_path: Path):
    path = write(tmp_path / "notes.txt", b"some notes")
    message = (
        rf"^The format is not known\. Pass it as `format`, one of {', '.join(FORMATS)}, or check "
        r"the file\. \(.*notes\.txt\)$"
    )
    with pytest.raises(FormatError, match=message):
        detect_format(path)


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
    message = r"^`columns` cannot be used with json_lines\. It is for arrow, csv, hugging_face, "
    with pytest.raises(PlanError, match=message):
        open_source(path, columns=["a"])
    message = r"^`delimiter` cannot be used with json_lines\. There is no such option\.$"
    with pytest.raises(PlanError, match=message):
        open_source(path, delimiter=";")
