import collections
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import MapDataset, MultiprocessingOptions, ReadOptions
from gristmill._data.element_store.store import FILES
from gristmill.errors import PlanError


def element(x: Any) -> dict[str, Any]:
    return {"image": np.full((4, 3), x, np.uint8), "label": int(x), "y": np.float32(x)}


def text(x: Any) -> dict[str, Any]:
    return {"text": "a" * int(x), "tokens": np.arange(x)}


class Counted:
    """Counts its calls in a file, one byte each, since workers call it, too."""

    def __init__(self, path: Path, function: Any = element) -> None:
        self.path = path
        self.function = function
        path.touch()

    def __call__(self, x: Any) -> Any:
        with open(self.path, "ab") as file:
            file.write(b".")
        return self.function(x)

    @property
    def num_calls(self) -> int:
        return os.path.getsize(self.path)


def check_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            check_equal(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "cache" if request.param == "disk" else None


@pytest.mark.parametrize("function", [element, text, str, lambda x: None if x % 3 else x])
def test_a_cache_does_not_change_the_elements_and_computes_each_once(
    tmp_path: Path, folder: Path | None, function: Any
) -> None:
    counted = Counted(tmp_path / "calls", function)
    plain = MapDataset.range(20).map(function)
    cached = MapDataset.range(20).map(counted).cache(folder)
    for _ in range(3):
        check_equal([cached[i] for i in range(20)], [plain[i] for i in range(20)])
        check_equal(list(cached.shuffle(seed=1)), list(plain.shuffle(seed=1)))
        check_equal([cached[i] for i in range(18, 45)], [plain[i] for i in range(18, 45)])
    assert counted.num_calls == 20


@pytest.mark.parametrize("step", [lambda ds: ds.batch(3), lambda ds: ds.map(str), lambda ds: ds])
def test_steps_above_a_cache_see_the_elements_of_below(folder: Path | None, step: Any) -> None:
    plain = step(MapDataset.range(20).map(element).shuffle(seed=2).repeat(2))
    cached = step(MapDataset.range(20).map(element).cache(folder).shuffle(seed=2).repeat(2))
    check_equal(list(cached), list(plain))
    check_equal(list(cached), list(plain))


def test_batches_are_cached_as_well(folder: Path | None) -> None:
    plain = MapDataset.range(20).map(element).batch(6)
    cached = plain.cache(folder)
    for _ in range(2):
        check_equal(list(cached), list(plain))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("num_threads", [0, 4])
def test_workers_share_a_cache_with_later_epochs(
    tmp_path: Path, folder: Path | None, num_workers: int, num_threads: int
) -> None:
    counted = Counted(tmp_path / "calls")
    ds = MapDataset.range(60).map(counted).cache(folder).shuffle(seed=1)
    stream = ds.to_iter_dataset(ReadOptions(num_threads=num_threads)).batch(7)
    if num_workers:
        stream = stream.mp_prefetch(MultiprocessingOptions(num_workers=num_workers))
    plain = list(MapDataset.range(60).map(element).shuffle(seed=1).to_iter_dataset().batch(7))
    check_equal(list(stream), plain)
    check_equal(list(stream), plain)
    assert counted.num_calls == 60
    check_equal(list(ds), list(MapDataset.range(60).map(element).shuffle(seed=1)))
    assert counted.num_calls == 60


def test_a_resumed_iterator_continues_with_the_same_elements(folder: Path | None) -> None:
    ds = MapDataset.range(30).map(element).cache(folder).shuffle(seed=3).batch(4)
    expected = list(ds)
    iterator = iter(ds)
    next(iterator)
    state = iterator.get_state()
    other = iter(MapDataset.range(30).map(element).shuffle(seed=3).batch(4))
    other.set_state(state)  # with or without a cache
    check_equal(list(other), expected[1:])


def test_a_changed_function_or_source_is_a_new_cache(tmp_path: Path) -> None:
    def make(add: int, count: int) -> list[int]:
        return list(MapDataset.range(count).map(lambda x: x + add).cache(tmp_path / "c"))

    assert make(1, 3) == [1, 2, 3]
    assert make(2, 3) == [2, 3, 4]
    assert make(2, 4) == [2, 3, 4, 5]
    assert make(1, 3) == [1, 2, 3]


def test_a_shard_below_a_cache_is_another_cache_for_another_shard(tmp_path: Path) -> None:
    ds = MapDataset.range(9).map(str)
    for shard in range(3):
        assert list(ds[shard::3].cache(tmp_path / "c")) == list(ds[shard::3])


def store_of(folder: Path) -> Path:
    (store,) = [path for path in folder.iterdir() if path.is_dir()]
    assert sorted(path.name for path in store.iterdir()) == sorted(FILES)
    return store


@pytest.mark.parametrize("function", [element, text])
@pytest.mark.parametrize("name", ["entries", "columns", "bytes", "layout"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "zeros", "garbage"])
def test_a_damaged_file_is_recomputed_never_returned(
    tmp_path: Path, function: Any, name: str, damage: str
) -> None:
    folder = tmp_path / "c"
    expected = list(MapDataset.range(20).map(function))
    list(MapDataset.range(20).map(function).cache(folder))
    path = store_of(folder) / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        for place in range(0, len(content), 7):
            content[place] ^= 5
    elif damage == "truncate":
        del content[len(content) // 2 :]
    elif damage == "zeros":
        content[:] = bytes(len(content))
    else:
        content[:] = np.random.default_rng(0).bytes(len(content))
    path.write_bytes(content)
    for _ in range(2):
        check_equal(list(MapDataset.range(20).map(function).cache(folder)), expected)


FILL = """
import sys, os, signal
import numpy as np
from gristmill import MapDataset

def element(x):
    return {"image": np.full((64, 64), x, np.int32), "name": int(x)}

count = 0
stop = int(sys.argv[2])
for found in MapDataset.range(200).map(element).cache(sys.argv[1]).shuffle(seed=int(sys.argv[3])):
    assert (found["image"] == found["name"]).all()
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGKILL)
print(count)
"""


def test_killed_and_concurrent_writers_leave_a_correct_cache(tmp_path: Path) -> None:
    program = tmp_path / "fill.py"
    program.write_text(FILL)

    def start(stop: int, seed: int) -> "subprocess.Popen[str]":
        command = [sys.executable, str(program), str(tmp_path / "c"), str(stop), str(seed)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    writers = [start(90, 1), start(150, 2), start(0, 3), start(0, 4)]
    ends = [(writer.communicate()[0], writer.returncode) for writer in writers]
    assert ends[:2] == [("", -signal.SIGKILL)] * 2
    assert ends[2:] == [("200\n", 0)] * 2
    last = start(0, 5)
    assert last.communicate()[0] == "200\n"
    assert len([path for path in (tmp_path / "c").iterdir() if path.is_dir()]) == 1


def used(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("function", [lambda x: np.full(4096, x, np.uint8), lambda x: "a" * 4096])
def test_a_full_cache_stays_within_its_limit(tmp_path: Path, function: Any) -> None:
    folder = tmp_path / "c"
    ds = MapDataset.range(100).map(function).cache(folder, max_bytes=200_000)
    for _ in range(2):
        check_equal(list(ds), list(MapDataset.range(100).map(function)))
    assert 50_000 < used(folder) <= 200_000


def test_a_new_cache_replaces_the_oldest_unless_it_is_in_use(tmp_path: Path) -> None:
    def make(seed: int) -> Any:
        made = MapDataset.range(40).map(lambda x: np.full(4096, x + seed, np.uint8))
        return made.cache(tmp_path / "c", max_bytes=300_000)

    kept = make(1)
    assert kept[3][0] == 4
    for seed in (2, 3, 4):
        made = make(seed)
        assert [one[0] for one in made] == list(range(seed, 40 + seed))
        assert used(tmp_path / "c") <= 300_000
        del made
    assert kept[3][0] == 4
    assert len([path for path in (tmp_path / "c").iterdir() if path.is_dir()]) <= 3


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("text")
    ds = MapDataset.range(3).cache(tmp_path)
    with pytest.raises(PlanError, match="was not created by `cache` and is not empty"):
        list(ds)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_written_is_logged_and_elements_are_computed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    ds = MapDataset.range(3).cache(tmp_path / "file" / "c")
    assert list(ds) == [0, 1, 2]
    assert "cannot be opened" in caplog.text


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda ds: ds.shuffle(seed=1), "the random step after it"),
        (lambda ds: ds.random_map(lambda x, rng: x, seed=1).map(str), "the random step after it"),
        (lambda ds: ds.sample([1, 2, 3], seed=1), "the random step after it"),
        (lambda ds: ds.map_with_index(lambda i, x: x), "`map_with_index` after it"),
        (lambda ds: MapDataset.mix([ds, ds]), "on each dataset"),
    ],
)
def test_a_step_that_differs_between_epochs_is_refused(make: Any, remedy: str) -> None:
    with pytest.raises(PlanError, match=f"every epoch equal to the first.*{remedy}"):
        make(MapDataset.range(3)).cache()


class Own(MapDataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        return index


def test_a_dataset_of_the_users_own_is_cached_as_a_source() -> None:
    with pytest.raises(PlanError, match=r"use `MapDataset.source\(dataset\)`"):
        Own().map(str).cache()
    assert list(MapDataset.source(Own()).map(str).cache()) == ["0", "1", "2"]


def test_an_infinite_dataset_is_refused() -> None:
    with pytest.raises(PlanError, match="Call `cache` before `repeat`"):
        MapDataset.range(3).repeat().cache()


Point = collections.namedtuple("Point", "x y")


def test_an_object_that_files_cannot_hold_is_refused_on_disk_and_kept_in_memory(
    tmp_path: Path,
) -> None:
    ds = MapDataset.range(3).map(lambda x: Point(x, 1))
    with pytest.raises(PlanError, match=r"cannot store an object of type Point.*`map` before"):
        list(ds.cache(tmp_path / "c"))
    assert list(ds.cache()) == list(ds.cache()) == list(ds)


def test_an_error_of_an_element_comes_each_time_and_the_others_are_stored(
    tmp_path: Path, folder: Path | None
) -> None:
    counted = Counted(tmp_path / "calls", lambda x: 6 // (x - 3))
    ds = MapDataset.range(6).map(counted).cache(folder)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            list(ds)
    assert [ds[i] for i in (0, 1, 2, 4, 5)] == [-2, -3, -6, 6, 3]


def test_an_element_can_be_modified_without_changing_the_cache(folder: Path | None) -> None:
    ds = MapDataset.range(3).map(element).cache(folder)
    for _ in range(3):
        found = ds[1]
        assert found is not None
        assert found["image"].max() == 1
        found["image"][:] = 9


class Alternating:
    """A selection of two datasets in turn, which continues after its length."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: Any) -> tuple[int, int]:
        return index % 2, index // 2


def test_a_selection_whose_later_epochs_have_other_elements_is_not_cached() -> None:
    datasets = [MapDataset.range(5), MapDataset.range(100, 103)]
    selected = MapDataset.select_from_datasets(datasets, Alternating())

    assert list(selected.repeat(2)) == [0, 100, 1, 101, 2, 102, 3, 100, 4, 101, 0, 102]
    with pytest.raises(PlanError, match=r"Select\(.* elements in each epoch.*on each dataset"):
        selected.cache()


def test_equal_epochs_of_a_shuffled_dataset_are_cached() -> None:
    repeated = MapDataset.range(9).shuffle(seed=1).repeat(2, reseed_each_epoch=False)

    assert list(repeated.cache()) == list(repeated)
