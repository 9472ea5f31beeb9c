"""Crafted indexes of folders of shards: MDS, LitData and Hugging Face."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from gristmill.errors import FileError, FormatError, MissingFileError
from gristmill.sources import HuggingFaceSource, LitDataSource, MdsSource
from tests.hostile.parsers import make_litdata, make_litdata_index, make_mds, make_mds_index

Edit = Callable[[Any], object]


@pytest.fixture
def mds(tmp_path: Path) -> Path:
    make_mds(tmp_path / "0.mds")
    make_mds_index(tmp_path / "index.json")
    return tmp_path


@pytest.fixture
def litdata(tmp_path: Path) -> Path:
    make_litdata(tmp_path / "0.bin")
    make_litdata_index(tmp_path / "index.json")
    return tmp_path


def edit_json(path: Path, edit: Edit) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


COUNTS = [2**63, 2**64, 10**30, 2**62, 2**32, -1, 20.0, True, "20", None]


@pytest.mark.parametrize("count", COUNTS)
def test_a_number_of_records_that_cannot_be_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, mds: Path, count: object
) -> None:
    edit_json(mds / "index.json", lambda index: index["shards"][0].update(samples=count))
    with pytest.raises(FormatError, match="is not a count"):
        len(MdsSource(mds))
    other = tmp_path_factory.mktemp("litdata")
    make_litdata(other / "0.bin")
    make_litdata_index(other / "index.json")
    edit_json(other / "index.json", lambda index: index["chunks"][0].update(chunk_size=count))
    with pytest.raises(FormatError, match="is not a count"):
        len(LitDataSource(other))


def test_shards_whose_records_add_up_to_nothing_are_not_an_empty_source(mds: Path) -> None:
    # 4 x 2**62 is 0 in 64 bits.
    edit_json(
        mds / "index.json",
        lambda index: index.update(shards=[{**index["shards"][0], "samples": 2**62}] * 4),
    )
    with pytest.raises(FormatError, match="is not a count"):
        len(MdsSource(mds))


NAMES = ["../0.mds", "/etc/passwd", "a\\b", "", None, 3, "x::http://localhost:9/0.mds"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_is_an_error(mds: Path, name: object) -> None:
    edit_json(
        mds / "index.json", lambda index: index["shards"][0]["raw_data"].update(basename=name)
    )
    with pytest.raises(FormatError, match="not an index of MDS shards"):
        MdsSource(mds)[0]


PATTERNS = ["*", "[0]*", "{0,1}.mds", "{0..999999}.mds", "a\0b", "\ud800"]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_in_an_index_of_mds_is_no_pattern(mds: Path, name: str) -> None:
    edit_json(
        mds / "index.json", lambda index: index["shards"][0]["raw_data"].update(basename=name)
    )
    with pytest.raises(MissingFileError):
        MdsSource(mds)[0]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_in_an_index_of_litdata_is_no_pattern(litdata: Path, name: str) -> None:
    edit_json(litdata / "index.json", lambda index: index["chunks"][0].update(filename=name))
    with pytest.raises(MissingFileError):
        LitDataSource(litdata)[0]


def test_a_name_in_a_state_of_hugging_face_is_no_pattern(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"x": [1, 2]}).save_to_disk(tmp_path / "a")
    state = tmp_path / "a" / "state.json"
    edit_json(state, lambda content: content.update(_data_files=[{"filename": "*.arrow"}]))
    with pytest.raises(MissingFileError):
        HuggingFaceSource(tmp_path / "a")


def test_a_file_whose_name_looks_like_a_pattern_is_read(mds: Path) -> None:
    shutil.move(mds / "0.mds", mds / "{0,1}*.mds")
    edit_json(
        mds / "index.json",
        lambda index: index["shards"][0]["raw_data"].update(basename="{0,1}*.mds"),
    )
    assert MdsSource(mds)[3]["count"] == 3


@pytest.mark.parametrize(
    "edit",
    [
        lambda config: config.update(data_format=["int"]),
        lambda config: config.update(data_format=[]),
        lambda config: config.update(data_format=["int"] * 5),
        lambda config: config.update(data_format=["no_header_numpy:" + "9" * 5000] * 4),
        lambda config: config.update(
            data_spec='[1, {"type": "builtins.tuple", "context": "", "children_spec": []}]'
        ),
        lambda config: config.update(
            data_spec='[1, {"type": "builtins.dict", "context": "[[]]",'
            ' "children_spec": [{"type": null}]}]'
        ),
        lambda config: config.update(
            data_spec='[1, {"type": "builtins.dict", "context":'
            ' "[1, 1]", "children_spec": [{"type": null}, {"type": null}]}]'
        ),
    ],
)
def test_a_tree_that_does_not_fit_its_leaves_is_an_error(litdata: Path, edit: Edit) -> None:
    edit_json(litdata / "index.json", lambda index: edit(index["config"]))
    with pytest.raises(FileError):
        LitDataSource(litdata).__getitems__(range(20))


def test_a_negative_axis_of_mds_is_an_error(mds: Path) -> None:
    edit_json(
        mds / "index.json",
        lambda index: index["shards"][0]["column_encodings"].__setitem__(3, "ndarray:float32:-1"),
    )
    with pytest.raises(FormatError, match="the size of an axis is negative"):
        MdsSource(mds)[0]


def test_a_path_that_no_file_can_have_is_missing() -> None:
    for path in ("a\0b.json", "\ud800.json"):
        with pytest.raises(MissingFileError):
            MdsSource(path)
