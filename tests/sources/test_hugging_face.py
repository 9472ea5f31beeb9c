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
from tables import check_rows, plain

from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from gristmill.sources._hugging_face import HuggingFaceSource


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
def test_rows_are_those_that_datasets_gives(tmp_path: Path, num_shards: int):
    dataset().save_to_disk(tmp_path / "d", num_shards=num_shards)
    expected = list(datasets.load_from_disk(tmp_path / "d"))
    check_rows(HuggingFaceSource(tmp_path / "d"), expected, [19, 0, 7, 7, 13])
    check_rows(HuggingFaceSource(tmp_path / "d"), expected, range(20))


def test_rows_that_were_shuffled_or_chosen_are_in_that_order(tmp_path: Path):
    chosen = dataset().shuffle(seed=1).select(range(5, 15))
    chosen.save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert [row["id"] for row in source.__getitems__(range(10))] == chosen["id"][:]


def test_numbers_go_to_the_batch_as_whole_columns(tmp_path: Path):
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
    made = source.read_columns(np.array([2, 0])).gather()
    assert made["label"].tolist() == [1, 0]
    assert made["x"].tolist() == [[6, 7, 8], [0, 1, 2]]


def test_a_split_is_read_of_a_folder_with_several(tmp_path: Path):
    datasets.DatasetDict({"train": dataset(20), "test": dataset(3)}).save_to_disk(tmp_path / "d")
    assert len(HuggingFaceSource(tmp_path / "d", split="train")) == 20
    source = HuggingFaceSource(f"{tmp_path}/d/", split="test", columns=["text", "id"])
    assert plain(source[2]) == {"text": "text 2", "id": 2}
    assert repr(source) == "HuggingFaceSource('d', split='test', columns=['text', 'id'])"
    assert len(HuggingFaceSource(tmp_path / "d" / "test")) == 3


def test_a_dataset_may_have_no_rows(tmp_path: Path):
    datasets.Dataset.from_dict({"a": []}).save_to_disk(tmp_path / "d")
    source = HuggingFaceSource(tmp_path / "d")
    assert (len(source), source.__getitems__([]), source.is_columnar) == (0, [], False)
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_pictures_are_given_as_they_are_stored(tmp_path: Path):
    features = datasets.Features({"image": datasets.Image()})
    data = {"image": [{"bytes": b"jpeg", "path": "a.jpg"}]}
    datasets.Dataset.from_dict(data, features=features).save_to_disk(tmp_path / "d")
    assert HuggingFaceSource(tmp_path / "d")[0] == {"image": {"bytes": b"jpeg", "path": "a.jpg"}}


PROGRAM = """
import pickle, sys
from gristmill.sources._hugging_face import HuggingFaceSource
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["text"], "datasets" in sys.modules)
print(len(HuggingFaceSource(sys.argv[1])[0]["matrix"]))
"""


def test_another_process_reads_it_without_the_package(tmp_path: Path):
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
    assert plain(HuggingFaceSource(tmp_path / "m")[0]) == {"matrix": [[1, 2, 3], [4, 5, 6]]}


@pytest.mark.parametrize("split", [None, "tset"])
def test_splits_are_listed_where_none_or_another_is_asked_for(tmp_path: Path, split: Any):
    datasets.DatasetDict({"train": dataset(), "test": dataset()}).save_to_disk(tmp_path / "d")
    told = f"`split` must be one of those in 'd', which are 'train', 'test', got {split!r}."
    with pytest.raises(PlanError, match=re.escape(told)):
        HuggingFaceSource(tmp_path / "d", split=split)


def test_a_single_dataset_has_no_splits(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d")
    told = "`split` is 'train', and 'd' holds a single dataset. Leave `split` out."
    with pytest.raises(PlanError, match=re.escape(told)):
        HuggingFaceSource(tmp_path / "d", split="train")


def test_another_folder_is_told(tmp_path: Path):
    told = (
        "It is not a folder that `save_to_disk` wrote: there is no state.json in it. Load the "
        f"dataset with `datasets`, and save it with `.save_to_disk(folder)`. ({tmp_path})"
    )
    with pytest.raises(FormatError, match=re.escape(told)):
        HuggingFaceSource(tmp_path)


def test_a_folder_that_is_not_there_raises(tmp_path: Path):
    with pytest.raises(MissingFileError):
        HuggingFaceSource(tmp_path / "d")


def test_a_missing_data_file_raises_at_once(tmp_path: Path):
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


def test_a_state_without_files_is_of_another_format(tmp_path: Path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(FormatError, match=r"state.json does not list its files, as `save_to_disk`"):
        HuggingFaceSource(tmp_path)


def test_an_order_that_is_stored_apart_is_not_ignored(tmp_path: Path):
    dataset().save_to_disk(tmp_path / "d")
    path = tmp_path / "d" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | {"_indices_data_files": [{"filename": "indices.arrow"}]}))
    told = "An old version of `datasets` saved the order of the rows apart from them. Load the"
    with pytest.raises(FormatError, match=re.escape(told)):
        HuggingFaceSource(tmp_path / "d")


def test_a_folder_in_a_store_is_read(tmp_path: Path):
    datasets.DatasetDict({"test": dataset(5)}).save_to_disk(tmp_path / "d")
    for path in sorted((tmp_path / "d").rglob("*.*")):
        with fsspec.open(f"memory://hub/{path.relative_to(tmp_path)}", "wb") as file:
            file.write(path.read_bytes())  # pyright: ignore
    source = HuggingFaceSource("memory://hub/d", split="test")
    check_rows(source, list(dataset(5)), [4, 0])
    with pytest.raises(FormatError, match=r"there is no state.json in it"):
        HuggingFaceSource("memory://hub/nothing")
