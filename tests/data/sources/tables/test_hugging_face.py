import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy as np
import pytest

from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from tests.data.sources.tables.small_tables import check_rows, to_python


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def dataset(count: int = 20) -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {
            "id": list(range(count)),
            "text": [f"text {n}" if n % 3 else None for n in range(count)],
            "tokens": [list(range(n % 4)) for n in range(count)],
            "answer": [{"start": n, "text": str(n)} for n in range(count)],
        }
    )


@pytest.mark.parametrize("num_shards", [1, 3])
def test_rows_equal_those_of_datasets(tmp_path: Path, num_shards: int):
    dataset().save_to_disk(tmp_path / "d", num_shards=num_shards)
    expected = list(datasets.load_from_disk(tmp_path / "d"))
    check_rows(HuggingFaceSource(tmp_path / "d"), expected, [19, 0, 7, 7, 13])
    check_rows(HuggingFaceSource(tmp_path / "d"), expected, range(20))


def test_rows_that_were_shuffled_or_selected_are_in_that_order(tmp_path: Path):
    selected = dataset().shuffle(seed=1).select(range(5, 15))
    selected.save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert [row["id"] for row in source.__getitems__(range(10))] == selected["id"][:]


def test_numbers_are_read_as_whole_columns(tmp_path: Path):
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "x": datasets.Sequence(datasets.Value("float32"), length=3),
        }
    )
    data = {"label": [0, 1, 1], "x": [[0, 1, 2], [3, 4, 5], [6, 7, 8]]}
    datasets.Dataset.from_dict(data, features=features).save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert source.is_columnar
    columns = source.read_columns(np.array([2, 0])).gather()
    assert columns["label"].tolist() == [1, 0]
    assert columns["x"].tolist() == [[6, 7, 8], [0, 1, 2]]


def test_one_split_of_a_folder_with_several_is_read(tmp_path: Path):
    datasets.DatasetDict({"train": dataset(20), "test": dataset(3)}).save_to_disk(tmp_path / "d")
    assert len(HuggingFaceSource(tmp_path / "d", split="train")) == 20
    source = HuggingFaceSource(f"{tmp_path}/d/", split="test", columns=["text", "id"])
    assert to_python(source[2]) == {"text": "text 2", "id": 2}
    assert repr(source) == "HuggingFaceSource('d', split='test', columns=['text', 'id'])"
    assert len(HuggingFaceSource(tmp_path / "d" / "test")) == 3


def test_a_dataset_may_have_no_rows(tmp_path: Path):
    datasets.Dataset.from_dict({"a": []}).save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert (len(source), source.__getitems__([]), source.is_columnar) == (0, [], False)
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_images_are_returned_as_they_are_stored(tmp_path: Path):
    features = datasets.Features({"image": datasets.Image()})
    data = {"image": [{"bytes": b"jpeg", "path": "a.jpg"}]}
    datasets.Dataset.from_dict(data, features=features).save_to_disk(tmp_path / "d")
    assert HuggingFaceSource(tmp_path / "d")[0] == {"image": {"bytes": b"jpeg", "path": "a.jpg"}}


PROGRAM = """
import pickle, sys
from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["text"], "datasets" in sys.modules)
print(len(HuggingFaceSource(sys.argv[1])[0]["matrix"]))
"""


def test_another_process_reads_it_without_the_datasets_library(tmp_path: Path):
    features = datasets.Features({"matrix": datasets.Array2D((2, 3), "int32")})
    matrix = {"matrix": [[[1, 2, 3], [4, 5, 6]]]}
    datasets.Dataset.from_dict(matrix, features=features).save_to_disk(tmp_path / "m")
    dataset().save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert len(source) == 20
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "m")],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"20 text 2 False\n2\n", b"")
    assert to_python(HuggingFaceSource(tmp_path / "m")[0]) == {"matrix": [[1, 2, 3], [4, 5, 6]]}


@pytest.mark.parametrize("split", [None, "tset"])
def test_a_missing_or_unknown_split_is_an_error_that_lists_the_splits(tmp_path: Path, split: Any):
    datasets.DatasetDict({"train": dataset(), "test": dataset()}).save_to_disk(tmp_path / "d")
    message = f"`split` must be one of the splits in 'd', 'train', 'test', got {split!r}."
    with pytest.raises(PlanError, match=re.escape(message)):
        HuggingFaceSource(tmp_path / "d", split=split)


def test_a_single_dataset_has_no_splits(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d")
    message = "`split` is 'train', but 'd' holds a single dataset. Leave `split` out."
    with pytest.raises(PlanError, match=re.escape(message)):
        HuggingFaceSource(tmp_path / "d", split="train")


def test_a_folder_not_written_by_save_to_disk_is_an_error(tmp_path: Path):
    message = (
        "The folder was not written by `save_to_disk`: it contains no state.json. Load the "
        f"dataset with `datasets`, and save it with `.save_to_disk(folder)`. ({tmp_path})"
    )
    with pytest.raises(FormatError, match=re.escape(message)):
        HuggingFaceSource(tmp_path)


def test_a_missing_folder_is_an_error(tmp_path: Path):
    with pytest.raises(MissingFileError):
        HuggingFaceSource(tmp_path / "d")


def test_a_missing_data_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d", num_shards=2)
    (tmp_path / "d" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(MissingFileError) as caught:
        HuggingFaceSource(tmp_path / "d")
    assert caught.value.path == f"{tmp_path}/d/data-00001-of-00002.arrow"


def test_a_state_that_is_not_json_is_corrupt(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"The file is not JSON: .* \(.*state.json\)"):
        HuggingFaceSource(tmp_path / "d")


def test_a_state_without_a_list_of_files_is_an_error(tmp_path: Path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(FormatError, match=r"state.json does not list the data files\. Save"):
        HuggingFaceSource(tmp_path)


def test_an_order_that_is_saved_separately_is_an_error(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d")
    path = tmp_path / "d" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | {"_indices_data_files": [{"filename": "indices.arrow"}]}))
    message = "An old version of `datasets` saved the order of the rows separately. Load the"
    with pytest.raises(FormatError, match=re.escape(message)):
        HuggingFaceSource(tmp_path / "d")


def test_a_folder_in_a_store_is_read(tmp_path: Path):
    datasets.DatasetDict({"test": dataset(5)}).save_to_disk(tmp_path / "d")
    for path in sorted((tmp_path / "d").rglob("*.*")):
        with fsspec.open(f"memory://hub/{path.relative_to(tmp_path)}", "wb") as file:
            file.write(path.read_bytes())  # pyright: ignore
    source = HuggingFaceSource("memory://hub/d", split="test")
    check_rows(source, list(dataset(5)), [4, 0])
    with pytest.raises(FormatError, match=r"it contains no state\.json"):
        HuggingFaceSource("memory://hub/nothing")
