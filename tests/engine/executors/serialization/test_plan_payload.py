"""What every worker gets at its start: packed once, mapped by each."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gristmill._engine.executors.serialization.packed_list import MIN_MAPPED_RECORDS
from gristmill._engine.executors.serialization.packed_records import MIN_RECORDS
from gristmill._engine.executors.serialization.packed_sources import PackedSources
from gristmill._engine.executors.serialization.plan_payload import PickledPlan, PlanPayload
from gristmill._engine.executors.serialization.shared_memory import ALIGNMENT, address_of

InWorker = Callable[..., Any]


def pack(*objects: object) -> PlanPayload:
    return PickledPlan(*objects).write()


def copies(thing: Any, count: int = 2) -> list[Any]:
    """Pack a thing once, and unpack it as often as there would be workers."""
    package = pack(thing)
    given = [
        next(PlanPayload(os.dup(package.descriptor), package.sizes).unpack()) for _ in range(count)
    ]
    os.close(package.descriptor)
    return given


def test_any_thing_comes_out_as_it_went_in():
    class Local:
        def __init__(self, values: list[int]) -> None:
            self.values = values

    one, _ = copies({"text": "x", "f": lambda x: x + 1, "local": Local([1]), "none": None})

    assert one["text"] == "x"
    assert one["f"](1) == 2
    assert one["local"].values == [1]
    assert one["none"] is None


ARRAYS = {
    "large": np.arange(100_000.0).reshape(100, 1000),
    "small": np.arange(3),
    "empty": np.zeros((0, 4)),
    "text": np.array(["a", "bcd"] * 2000),
    "times": np.arange(5000).astype("M8[s]"),
    "big endian": np.arange(5000, dtype=">i4"),
    "columns first": np.asfortranarray(np.arange(6000.0).reshape(60, 100)),
    "every other": np.arange(10_000)[::2],
    "objects": np.array([1, "a", None] * 100, dtype=object),
    "structured": np.zeros(1000, [("a", "i4"), ("b", "f8", (2,))]),
}


def content(array: Any) -> Any:
    return array.tolist() if array.dtype.hasobject else array.tobytes()


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("is_writeable", [True, False])
def test_arrays_keep_type_shape_content_and_writability(name: str, is_writeable: bool):
    array = ARRAYS[name].copy(order="K")
    array.flags.writeable = is_writeable

    for copy in copies(array):
        assert copy.dtype == array.dtype
        assert copy.shape == array.shape
        assert content(copy) == content(array)
        assert copy.flags.writeable == is_writeable


def test_many_arrays_lie_side_by_side_each_on_a_cache_line():
    arrays = [np.full(1500 + number, number, np.uint8) for number in range(100, 200)]

    one, other = copies(arrays)

    for original, array, again in zip(arrays, one, other, strict=True):
        assert address_of(array) % ALIGNMENT == 0
        assert array.tolist() == again.tolist() == original.tolist()
        assert address_of(array) != address_of(again)


def test_what_one_worker_writes_stays_its_own():
    original = np.zeros(50_000)
    one, other = copies(original)

    one[:] = 1.0

    assert one.sum() == 50_000
    assert other.sum() == 0
    assert original.sum() == 0
    other[3] = 5.0
    assert one[3] == 1.0


def test_an_array_in_two_places_is_packed_once():
    array = np.zeros(1_000_000, np.uint8)
    package = pack([array, array, {"again": array}])

    assert 1_000_000 <= sum(package.sizes) < 1_010_000
    first, second, third = next(package.unpack())
    assert first is second is third["again"]


def test_arrays_are_not_copied_out_of_the_memory():
    package = pack(np.zeros(100_000, np.uint8))
    writer = os.dup(package.descriptor)
    array = next(package.unpack())

    os.pwrite(writer, b"\7" * 100_000, os.fstat(writer).st_size - 100_032)  # its last part
    os.close(writer)

    assert set(array.tolist()) == {7}  # as nobody has written to it here


def test_unpacking_closes_the_descriptor():
    package = pack(np.arange(1000))

    next(package.unpack())

    with pytest.raises(OSError, match="Bad file"):
        os.fstat(package.descriptor)


def test_what_cannot_be_packed_leaves_no_descriptor():
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError, match="lock"):
        pack([np.zeros(100_000), threading.Lock()])

    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_file_that_is_mapped_is_sent_by_its_name(tmp_path: Path):
    path = tmp_path / "data.bin"
    np.arange(100_000).tofile(path)
    array = np.memmap(path, np.int64, "r")

    package = pack({"whole": array, "part": array[10:20]})

    assert sum(package.sizes) < 10_000
    given = next(package.unpack())
    assert given["part"].tolist() == list(range(10, 20))
    assert given["whole"].sum() == array.sum()


# Whether shared memory still holds what would be packed now


def changes() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Return what a user may do to a source between two loops, and the workers must notice."""

    def in_place(name: str, index: Any, value: Any) -> Callable[[dict[str, Any]], object]:
        return lambda source: source[name].__setitem__(index, value)

    return {
        "a list grows": lambda source: source["list"].append(4),
        "an item of a list": in_place("list", 0, 7),
        "a key of a dict": lambda source: source["dict"].update(other=1),
        "a small array": in_place("small", 1, 9),
        "the last item of a large array": in_place("large", -1, 9.0),
        "an item in the middle of a large array": in_place("large", 200_000, 9.0),
        "another shape": lambda source: source.update(large=source["large"].reshape(2, -1)),
        "another type": lambda source: source.update(large=source["large"].view(np.int64)),
        "a shorter array": lambda source: source.update(large=source["large"][:-1]),
        "read-only": lambda source: setattr(source["large"].flags, "writeable", False),
        "one array less": lambda source: source.pop("more"),
    }


def make_source() -> dict[str, Any]:
    return {
        "list": [1, 2, 3],
        "dict": {"x": "y"},
        "small": np.arange(3),
        "large": np.zeros(400_000),
        "more": np.ones(5000),
    }


def test_the_same_objects_are_in_the_memory():
    source = make_source()
    payload = pack(max, source)

    assert PickledPlan(max, source).is_in(payload)
    payload.close()


@pytest.mark.parametrize("name", changes())
def test_a_change_of_a_source_is_noticed(name: str):
    source = make_source()
    payload = pack(source)
    assert PickledPlan(source).is_in(payload)

    changes()[name](source)

    assert not PickledPlan(source).is_in(payload)
    payload.close()


def test_a_payload_that_is_closed_is_mapped_no_more():
    payload = pack(make_source())
    before = count_mappings()
    assert PickledPlan(make_source()).is_in(payload)
    assert count_mappings() > before

    payload.close()

    assert count_mappings() == before


def test_packed_sources_are_kept_on_the_memory_of_the_workers():
    before = count_mappings()
    source = [str(number) for number in range(100_000)]
    sources = PackedSources()
    plan = PickledPlan(sources.pack(source))
    plan.sources = sources.comparable

    payload = plan.write()

    (kept,) = payload.sources
    assert [kept.packed[index] for index in (0, 99_999)] == ["0", "99999"]
    assert count_mappings() == before + 1
    assert PickledPlan(kept.packed).is_in(payload)
    assert count_mappings() == before + 1
    payload.close()
    assert kept.packed[99_999] == "99999"
    del kept
    assert count_mappings() == before


class Folder:
    """A dataset as users write them."""

    def __init__(self) -> None:
        self.samples = [(f"train/{number}.jpeg", number) for number in range(MIN_RECORDS)]
        self.splits = {"train": self.samples, "val": [number / 7 for number in range(5000)]}
        self.nested = ([self.samples], self.splits["val"][:MIN_RECORDS])


def sizes_of(folder: Folder) -> Any:
    samples = folder.samples
    return lambda: len(samples)


FOLDER_CHANGES: dict[str, Callable[[Folder], object]] = {
    "append": lambda folder: folder.samples.append(("new", 1)),
    "pop": lambda folder: folder.samples.pop(),
    "replace": lambda folder: folder.samples.__setitem__(700, ("new", 1)),
    "same name": lambda folder: folder.samples.__setitem__(0, (folder.samples[0][0], 7)),
    "of another type": lambda folder: folder.samples.__setitem__(1, ("train/1.jpeg", True)),
    "sign of zero": lambda folder: folder.splits["val"].__setitem__(0, -0.0),
    "swap": lambda folder: folder.samples.__setitem__(slice(0, 2), folder.samples[1::-1]),
    "slice": lambda folder: folder.samples.__setitem__(slice(5, 7), [("a", 1), ("b", 2)]),
    "delete": lambda folder: folder.samples.__delitem__(slice(None)),
    "sort": lambda folder: folder.samples.sort(key=lambda sample: -sample[1]),
    "in a dict": lambda folder: folder.splits["val"].reverse(),
    "in a tuple": lambda folder: folder.nested[1].append(1.0),
    "another list": lambda folder: folder.nested[0].append(folder.samples),
    "a copy": lambda folder: setattr(folder, "samples", folder.samples[:-1]),
    "no longer shared": lambda folder: folder.splits.update(train=list(folder.samples)),
    "what can change": lambda folder: folder.samples.append(cast(Any, ([], 1))),
}


@pytest.mark.parametrize("name", FOLDER_CHANGES)
@pytest.mark.parametrize("wrap", [lambda folder: folder, sizes_of], ids=["object", "function"])
def test_a_change_of_a_list_in_an_object_is_noticed(name: str, wrap: Callable[[Folder], Any]):
    folder = Folder()
    first = PickledPlan(folder, wrap(folder), lists=PackedSources())
    payload = first.write()
    assert len(payload.sources) == 3
    assert PickledPlan(folder, wrap(folder), lists=PackedSources(payload.sources)).is_in(payload)

    FOLDER_CHANGES[name](folder)

    again = PickledPlan(folder, wrap(folder), lists=PackedSources(payload.sources))
    assert not again.is_in(payload)
    changed = again.write()
    (loaded, _) = changed.unpack()
    assert vars(loaded) == vars(folder)
    assert repr(vars(loaded)) == repr(vars(folder))
    payload.close()


def test_a_list_that_is_reached_twice_is_one_object():
    folder = Folder()
    long = [str(number) for number in range(MIN_MAPPED_RECORDS)]
    payload = PickledPlan(long, {"x": folder, "y": (folder.samples, long)}, lists=PackedSources())

    first, second = payload.write().unpack()

    loaded = second["x"]
    assert loaded.samples is loaded.splits["train"] is loaded.nested[0][0] is second["y"][0]
    assert first is second["y"][1]
    assert type(loaded.samples) is list
    assert isinstance(first, list)
    assert first[777] == "777"
    assert first == long


def test_a_long_list_is_in_memory_once():
    long = [f"{number:06}" for number in range(MIN_MAPPED_RECORDS)]
    payload = PickledPlan({"x": long}, lambda: long, lists=PackedSources()).write()

    assert sum(payload.sizes) < 1.5 * (6 + 8) * len(long)  # characters, and where each ends
    payload.close()


def test_without_lists_there_is_nothing_to_find():
    source = make_source()
    payload = pack(source)

    assert PickledPlan(source, lists=PackedSources()).is_in(payload)
    assert PickledPlan(source, lists=PackedSources([])).is_in(payload)
    payload.close()


def test_memory_that_cannot_be_mapped_does_not_count_as_the_same():
    payload = pack(make_source())
    os.close(payload.descriptor)

    assert not PickledPlan(make_source()).is_in(payload)


def count_mappings() -> int:
    """Return how many ranges of anonymous shared memory are mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:gristmill")
