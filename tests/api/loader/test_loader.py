import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill._base.threads.background import Background
from gristmill.errors import ClosedError, PlanError
from tests.time_limits import PATIENCE_S


class Modulo(gm.Filter):
    def __init__(self, divisor: int) -> None:
        self.divisor = divisor

    def filter(self, element: Any) -> bool:
        return bool(np.sum(element[0] if isinstance(element, tuple) else element) % self.divisor)


class Split(gm.FlatMap):
    """As many pieces as the element's remainder, none included."""

    max_fan_out = 4

    def flat_map(self, element: Any) -> Any:
        return [element * 10 + piece for piece in range(int(np.sum(element)) % 4)]


class Draw(gm.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(2**30))


class AddIndex(gm.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "nothing": list,
    "map": lambda: [lambda x: -x],
    "batch": lambda: [gm.Batch(4)],
    "batch, remainder dropped": lambda: [gm.Batch(4, drop_remainder=True)],
    "filter": lambda: [Modulo(3)],
    "filter, batch": lambda: [Modulo(3), gm.Batch(4)],
    "filter, batch, remainder dropped": lambda: [Modulo(3), gm.Batch(4, drop_remainder=True)],
    "batch, filter": lambda: [gm.Batch(3), Modulo(2)],
    "batch, filter, batch": lambda: [gm.Batch(3, True), Modulo(2), Draw(), gm.Batch(2)],
    "flat map": lambda: [Split()],
    "flat map, flat map": lambda: [Split(), Split()],
    "flat map, batch": lambda: [Split(), gm.Batch(5)],
    "flat map, filter, flat map, batch": lambda: [Split(), Modulo(3), Split(), gm.Batch(3)],
    "batch, flat map": lambda: [gm.Batch(3), Split()],
    "batch, flat map, batch": lambda: [gm.Batch(3), Split(), gm.Batch(1)],
    "flat map, batch, flat map": lambda: [Split(), gm.Batch(3), Split()],
    "filter, batch, flat map, batch, batch": lambda: [
        Modulo(5),
        gm.Batch(2, drop_remainder=True),
        Split(),
        gm.Batch(2),
        gm.Batch(2, batch_fn=list),
    ],
    "random": lambda: [Draw()],
    "random, random": lambda: [Draw(), Draw(), AddIndex()],
    "flat map, random": lambda: [Split(), Draw(), Draw()],
    "filter, batch, random": lambda: [Modulo(2), gm.Batch(3), Draw(), AddIndex()],
    "batch of batches": lambda: [gm.Batch(2, drop_remainder=True), gm.Batch(3)],
}

execution = pytest.mark.parametrize(
    "options", [gm.ReadOptions(num_threads=0), gm.ReadOptions()], ids=["inline", "ahead"]
)


def loader_of(name: str, options: gm.ReadOptions, **sharded: Any) -> gm.DataLoader:
    return gm.DataLoader(
        data_source=range(23),
        sampler=gm.IndexSampler(23, shuffle=True, seed=5, num_epochs=2),
        operations=PIPELINES[name](),
        read_options=options,
        **sharded,
    )


def plain(element: Any) -> Any:
    if isinstance(element, list | tuple):
        return [plain(part) for part in element]
    return element.tolist() if isinstance(element, np.ndarray | np.generic) else element


@execution
@pytest.mark.parametrize("name", PIPELINES)
def test_resuming_after_any_element_yields_the_rest(name: str, options: gm.ReadOptions):
    loader = loader_of(name, options, shard_options=gm.ShardOptions(1, 2))
    expected = [plain(element) for element in loader]
    assert len(expected) > 1
    iterator = iter(loader)
    for cut in range(len(expected) + 1):
        resumed = iter(loader)
        resumed.set_state(iterator.get_state())
        assert resumed.get_state() == iterator.get_state()
        assert [plain(element) for element in resumed] == expected[cut:]
        if cut < len(expected):
            assert plain(next(iterator)) == expected[cut]
    assert next(iterator, None) is None


@pytest.mark.parametrize("name", PIPELINES)
def test_the_stream_and_its_states_do_not_depend_on_how_they_are_made(name: str):
    inline = iter(loader_of(name, gm.ReadOptions(num_threads=0)))
    ahead = iter(loader_of(name, gm.ReadOptions()))
    for element in inline:
        assert plain(next(ahead)) == plain(element)
        assert ahead.get_state() == inline.get_state()
    assert next(ahead, None) is None


@execution
def test_going_back_repeats_what_came(options: gm.ReadOptions):
    iterator = iter(loader_of("filter, batch", options))
    start = iterator.get_state()
    first = [plain(element) for element in iterator]
    iterator.set_state(start)
    assert [plain(element) for element in iterator] == first


@execution
def test_iterators_of_one_loader_are_apart(options: gm.ReadOptions):
    loader = loader_of("flat map, batch", options)
    one, other = iter(loader), iter(loader)
    assert one is not other
    assert iter(one) is one
    expected = [plain(element) for element in loader]
    next(one)
    assert [plain(element) for element in other] == expected
    assert [plain(element) for element in one] == expected[1:]


@execution
def test_the_end_stays_the_end(options: gm.ReadOptions):
    iterator = iter(gm.load([1], num_epochs=1, read_options=options))
    assert list(iterator) == [1]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


@execution
def test_a_closed_iterator_yields_no_more_but_reports_where_it_stands(options: gm.ReadOptions):
    loader = gm.load(range(5), num_epochs=1, read_options=options)
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [0, 1]
    iterator.close()
    iterator.close()
    with pytest.raises(
        ClosedError, match=r"^The iterator was closed\. Make a new one from the load"
    ):
        next(iterator)
    resumed = iter(loader)
    resumed.set_state(iterator.get_state())
    assert list(resumed) == [2, 3, 4]


def test_nothing_is_read_before_it_is_asked_for():
    read: list[int] = []
    loader = gm.load(range(5), num_epochs=1, transformations=[read.append])
    iterator = iter(loader)
    assert read == []
    iterator.close()


def test_prefetching_begins_when_requested_and_changes_no_state():
    was_read = threading.Event()

    def note(element: int) -> int:
        was_read.set()
        return element

    iterator = iter(gm.load(range(5), num_epochs=1, transformations=[note]))
    start = iterator.get_state()
    iterator.start_prefetch()
    iterator.start_prefetch()
    assert was_read.wait(PATIENCE_S)
    assert iterator.get_state() == start
    assert list(iterator) == [0, 1, 2, 3, 4]


def test_without_threads_prefetching_does_nothing():
    read: list[int] = []
    options = gm.ReadOptions(num_threads=0)
    iterator = iter(gm.load([1], num_epochs=1, transformations=[read.append], read_options=options))
    iterator.start_prefetch()
    iterator.close()
    assert read == []


def threads_ahead() -> set[threading.Thread]:
    running = (thread for thread in threading.enumerate() if isinstance(thread, Background))
    return {thread for thread in running if thread.role == "gristmill-stream"}


def test_close_ends_the_thread():
    before = threads_ahead()
    iterator = iter(gm.load(range(5), batch_size=2))
    iterator.start_prefetch()
    next(iterator)
    (mine,) = threads_ahead() - before
    iterator.close()
    assert not mine.is_alive()


def test_an_iterator_that_nobody_holds_ends_its_thread():
    before = threads_ahead()
    iterator = iter(gm.load(range(5), batch_size=2))
    iterator.start_prefetch()
    next(iterator)
    (mine,) = threads_ahead() - before
    del iterator
    gc.collect()
    mine.join(PATIENCE_S)
    assert not mine.is_alive()


@pytest.mark.parametrize("options", [gm.ReadOptions(num_threads=0), gm.ReadOptions(16, 0)])
def test_without_threads_or_buffer_there_is_no_thread(options: gm.ReadOptions):
    before = threads_ahead()
    iterator = iter(gm.load(range(5), batch_size=2, read_options=options))
    next(iterator)
    assert threads_ahead() == before


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["nothing", "filter", "flat map", "batch"])
def test_shards_share_the_records_between_them(name: str, shards: int):
    def records(shard: gm.ShardOptions) -> list[Any]:
        loader = loader_of(name, gm.ReadOptions(), shard_options=shard)
        return [n for element in loader for n in np.ravel(element).tolist()]

    whole = records(gm.NoSharding())
    parts = [n for s in range(shards) for n in records(gm.ShardOptions(s, shards))]
    assert sorted(parts) == sorted(whole)


def test_load_reads_all_records_in_order_without_end_by_default():
    iterator = iter(gm.load([1, 2, 3]))
    assert [next(iterator) for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]
    iterator.close()


def test_load_shuffles_shards_maps_and_batches():
    loader = gm.load(
        range(10),
        num_epochs=1,
        shuffle=True,
        seed=0,
        shard_options=gm.ShardOptions(0, 2),
        transformations=[lambda x: x + 100],
        batch_size=2,
        drop_remainder=True,
    )
    batches = [batch.tolist() for batch in loader]
    assert [len(batch) for batch in batches] == [2, 2]
    assert {n for batch in batches for n in batch} < {100, 101, 102, 103, 104}


def test_a_loader_reports_its_options():
    loader = gm.DataLoader(
        data_source=[1],
        sampler=gm.SequentialSampler(1),
        worker_count=2,
        worker_buffer_size=3,
        read_options=gm.ReadOptions(4, 5),
        enable_profiling=True,
    )
    assert loader.read_options == gm.ReadOptions(4, 5)
    assert loader.multiprocessing_options == gm.MultiprocessingOptions(2, 3, True)


def test_an_iterator_prints_where_it_stands():
    iterator = iter(gm.load([1, 2], num_epochs=1))
    next(iterator)
    assert repr(iterator).startswith("DataLoaderIterator(at 1 of ")


@execution
def test_an_empty_stream_of_a_users_sampler_ends_at_once(options: gm.ReadOptions):
    class Nothing:
        def __len__(self) -> int:
            return 0

        def __getitem__(self, index: int) -> gm.RecordMetadata:
            raise IndexError(index)

    loader = gm.DataLoader(data_source=[], sampler=Nothing(), read_options=options)
    assert list(loader) == []


@execution
def test_a_generator_that_is_kept_goes_on_by_itself(options: gm.ReadOptions):
    class Keep(gm.RandomMap):
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return rng

    loader = gm.load(range(6), num_epochs=1, seed=1, transformations=[Keep()], read_options=options)
    drawn = [int(rng.integers(1000)) for rng in list(loader)]
    expected = [np.random.Generator(np.random.Philox(key=1 + i)).integers(1000) for i in range(6)]
    assert drawn == expected


def test_load_takes_a_sampler_and_refuses_a_second_order():
    loader = gm.load(range(10), sampler=[5, 3, 8], batch_size=2)
    assert [batch.tolist() for batch in loader] == [[5, 3], [8]]
    shard = gm.ShardOptions(shard_index=1, shard_count=2)
    assert list(gm.load(range(10), sampler=[5, 3, 8, 1], shard_options=shard)) == [3, 1]
    for order in ({"shuffle": True}, {"seed": 1}, {"num_epochs": 2}):
        arguments: Any = order
        with pytest.raises(PlanError, match="`sampler` comes with its own order"):
            gm.load(range(10), sampler=[5], **arguments)
