"""Datasets and iterators that users derived from Grain's base classes run on ours unchanged."""

import pickle
from types import ModuleType
from typing import Any

import grain
import pytest

import gristmill
from gristmill.errors import ClosedError, PlanError
from tests.compat.both_sides import SIDES, ours


def proportional_slice(api: ModuleType, parent: Any, *, start: float, stop: float) -> Any:
    class ProportionalSlice(api.MapDataset):
        """The elements from one fraction of the parent to another."""

        def __init__(self, parent: Any, start: float, stop: float) -> None:
            super().__init__(parent)
            self._start = int(start * len(parent))
            self._length = int(stop * len(parent)) - self._start

        def __len__(self) -> int:
            return self._length

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                return self.slice(index)
            with self._stats.record_self_time():
                epoch, offset = divmod(index, self._length)
                at = epoch * len(self._parent) + self._start + offset
            return self._stats.record_output_spec(self._parent[at])

        def _getitems(self, indices: Any) -> Any:
            with self._stats.record_self_time(num_elements=len(indices)):
                found = [self[index] for index in indices]
            return self._stats.record_output_spec_for_batch(found)

    return ProportionalSlice(parent, start, stop)


def doubled_stream(api: ModuleType, parent: Any) -> Any:
    class DoubledIterator(api.DatasetIterator):
        def __next__(self) -> Any:
            self._assert_not_closed()
            timer_ns = 12
            element = next(self._parent)
            with self._stats.record_self_time(offset_ns=timer_ns):
                element = self._stats.record_bytes_consumed(element)
                made = self._stats.record_bytes_produced(2 * element)
                return self._stats.record_output_spec(made)

        def get_state(self) -> Any:
            return self._parent.get_state()

        def set_state(self, state: Any) -> None:
            self._parent.set_state(state)

    class Doubled(api.IterDataset):
        def __iter__(self) -> Any:
            return DoubledIterator(iter(self._parent))

    return Doubled(parent)


def test_a_proportional_slice_has_grains_elements_in_every_epoch():
    made: list[Any] = []
    for api in SIDES:
        ds = proportional_slice(
            api, api.MapDataset.range(10).seed(3).shuffle(), start=0.2, stop=0.7
        )
        ds = ds.repeat(3).map(lambda x: x + 100)
        made.append((len(ds), list(ds), [ds[i] for i in range(len(ds))], len(ds[2:9])))
    assert made[0] == made[1]


def test_slices_of_a_mixture_have_grains_elements():
    made: list[Any] = []
    for api in SIDES:
        parts = [
            proportional_slice(api, api.MapDataset.range(100), start=0, stop=0.5).repeat(),
            proportional_slice(api, api.MapDataset.range(100, 130), start=0.5, stop=1).repeat(),
        ]
        ds = api.MapDataset.mix(parts, weights=[0.7, 0.3]).slice(slice(0, 120)).repeat(2)
        made.append(list(ds))
    assert made[0] == made[1]


def test_a_stream_of_the_users_resumes_and_reports_nothing():
    made: list[Any] = []
    for api in SIDES:
        ds = doubled_stream(api, api.MapDataset.range(9).to_iter_dataset())
        iterator = iter(ds)
        head = [next(iterator) for _ in range(4)]
        state = iterator.get_state()
        tail = list(iterator)
        iterator.set_state(state)
        made.append((head, tail, list(iterator)))
    assert made[0] == made[1] == ([0, 2, 4, 6], [8, 10, 12, 14, 16], [8, 10, 12, 14, 16])


def test_statistics_of_a_dataset_are_offered_and_do_nothing():
    ds = proportional_slice(ours, ours.MapDataset.range(4), start=0, stop=1)
    assert ds._initialize_stats("any mode") is ds._stats
    assert ds._parents == ds.parents == (ds._parent,)
    assert ds._getitems([1, 3]) == [1, 3]
    assert ds._stats.report() is None
    assert ds._stats.output_spec is None
    assert pickle.loads(pickle.dumps(ds._stats)).record_output_spec(5) == 5


def test_a_dataset_may_set_its_own_statistics():
    ds = proportional_slice(ours, ours.MapDataset.range(4), start=0, stop=1)
    other = proportional_slice(ours, ours.MapDataset.range(4), start=0, stop=1)
    ds._stats = ds._parent._stats
    assert list(ds) == list(other)


def test_iterators_of_a_pipeline_share_a_context():
    iterator: Any = iter(doubled_stream(ours, ours.MapDataset.range(4).to_iter_dataset()))
    assert iterator._ctx is iterator._parent._ctx
    assert (iterator._ctx.mp_context.process_index, iterator._ctx.mp_context.process_count) == (
        0,
        1,
    )


def test_a_closed_iterator_of_the_users_does_not_advance():
    iterator = iter(doubled_stream(ours, ours.MapDataset.range(4).to_iter_dataset()))
    iterator.close()
    with pytest.raises(ClosedError, match=r"^The iterator was closed"):
        next(iterator)


@pytest.mark.parametrize("is_sequential", [False, True])
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("stop", [0, 2, 10])
def test_a_stream_of_a_dataset_can_be_sliced_in_place_as_in_grain(
    stop: int, index: int, is_sequential: bool
):
    def sliced(library: Any) -> list[int]:
        records = library.MapDataset.source(range(stop)).map(lambda x: 2 * x).shuffle(3)
        ds = records.to_iter_dataset()
        ds.set_slice(slice(index, None, 3), is_sequential)
        return list(ds)

    assert sliced(gristmill) == sliced(grain)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_source_can_be_restricted_to_a_range_in_place_as_in_grain(index: int):
    for make in (
        lambda library: library.MapDataset.range(10, 30, 2),
        lambda library: library.MapDataset.source(list("abcdefghij")),
    ):
        ours, theirs = make(gristmill), make(grain)
        assert len(list(ours)) == 10
        for ds in (ours, theirs):
            ds.set_slice(slice(index, None, 3), sequential_slice=True)
        assert list(ours) == list(theirs)


def test_a_source_refuses_a_slice_that_is_no_range():
    with pytest.raises(PlanError, match=r"contiguous range.*Use `ds\.slice\(sl\)`"):
        gristmill.MapDataset.range(3).set_slice(slice(0, None, 2))  # type: ignore[attr-defined]


def test_a_slice_in_place_reaches_a_users_own_source():
    class Letters(gristmill.MapDataset[str]):
        letters = "abcdef"

        def __len__(self) -> int:
            return len(self.letters)

        def __getitem__(self, index: Any) -> Any:
            return self.letters[index % len(self)]

    class Sliced(Letters):
        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            assert sequential_slice
            self.letters = self.letters[sl]

    letters = Sliced()
    ds: Any = letters.map(str.upper).to_iter_dataset()
    ds.set_slice(slice(1, None, 2), sequential_slice=True)
    assert (list(ds), letters.letters) == (["B", "D", "F"], "abcdef")

    other: Any = Letters().to_iter_dataset()
    with pytest.raises(PlanError, match=r"Letters has no `set_slice`.*define `set_slice"):
        other.set_slice(slice(1, None, 2), sequential_slice=True)
