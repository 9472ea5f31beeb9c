"""Steps over the order of a stream: what they yield, and what they refuse."""

import json
from typing import Any, cast

import numpy as np
import pytest

import gristmill as grain
from gristmill.errors import BatchError, PlanError, PlanTypeError, StateError
from gristmill.transforms import BucketByLength, Scan, Unbatch, Window


def numbers(count: int = 10) -> Any:
    return grain.MapDataset.range(count).to_iter_dataset()


def lists(ds: Any) -> list[Any]:
    return [element.tolist() for element in ds]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 9, 300])
def test_windows_cover_each_element_that_a_stride_does_not_leave_out(
    size: int, stride: int, count: int
):
    expected: list[list[int]] = []
    covered = 0
    for start in range(0, count, stride):
        end = min(start + size, count)
        if end > covered:
            expected.append(list(range(start, end)))
            covered = end
    assert lists(numbers(count).window(size, stride)) == expected
    full = [window for window in expected if len(window) == size]
    assert lists(numbers(count).window(size, stride, drop_remainder=True)) == full


def test_windows_do_not_overlap_by_default_and_may_be_made_by_a_function():
    assert lists(numbers(5).window(2)) == [[0, 1], [2, 3], [4]]
    assert list(numbers(3).window(2, 1, batch_fn=tuple)) == [(0, 1), (1, 2)]


def test_the_carried_value_of_a_scan_may_be_changed_in_place_and_is_restored():
    def collect(carried: Any, x: int) -> Any:
        carried["seen"].append(x)
        carried["mean"] += 1
        return carried, (len(carried["seen"]), float(carried["mean"].sum()))

    initial = {"seen": [], "mean": np.zeros((2, 2), np.float32), "name": ("a", None)}
    ds = numbers().scan(collect, initial)
    expected = [(n, 4.0 * n) for n in range(1, 11)]
    assert list(ds) == expected
    assert initial["seen"] == []

    iterator = iter(ds)
    states = [json.dumps(iterator.get_state())]
    states += [json.dumps(iterator.get_state()) for _ in iterator]
    for position, state in enumerate(states):
        other = iter(ds)
        other.set_state(json.loads(state))
        assert list(other) == expected[position:]


@pytest.mark.parametrize("corrupt", ["x", ["array", "<f4", [3], "AAAA"], ["set", 1], {"a": []}])
def test_a_state_with_another_carried_value_is_refused_or_restored(corrupt: Any):
    ds = numbers().scan(lambda carried, x: (carried, carried), 5)
    iterator = iter(ds)
    state = iterator.get_state()
    del state["checksum"]
    state["cursor"][0][1] = corrupt
    with pytest.raises(StateError):
        iterator.set_state(state)
    assert next(iterator) == 5


def test_buckets_are_yielded_when_they_are_full_and_the_rest_at_the_end():
    ds = grain.MapDataset.source([[1], [2] * 3, [3], [4] * 4, [5]]).to_iter_dataset()
    assert lists(ds.bucket_by_length([1, 4], batch_sizes=[2, 3])) == [
        [[1], [3]],
        [[5]],
        [[2, 2, 2, 0], [4, 4, 4, 4]],
    ]


def test_the_state_of_buckets_grows_with_what_they_hold_and_not_with_the_stream():
    lengths = [1] * 500 + [9] + [1] * 500
    ds = grain.MapDataset.source(lengths).map(lambda n: np.ones(n)).to_iter_dataset()
    iterator = iter(ds.bucket_by_length([1, 9], batch_sizes=10))
    for _ in range(80):
        next(iterator)
    # One long element is held, and its batch is at the end of the stream.
    assert iterator.get_state()["cursor"] == [[[801], 801, [[500, 1, [500]]]]]


def test_held_elements_are_read_again_after_a_restart_and_nothing_else():
    reads: list[int] = []

    def read(n: int) -> Any:
        reads.append(n)
        return np.ones(9 if n in (3, 700) else 1)

    ds = grain.MapDataset.range(1000).map(read)
    stream = ds.to_iter_dataset(grain.ReadOptions(num_threads=0))
    stream = stream.bucket_by_length([1, 9], batch_sizes=[10, 3])
    iterator = iter(stream)
    expected = [batch.tolist() for batch in iterator]
    iterator = iter(stream)
    for _ in range(90):
        next(iterator)
    state = iterator.get_state()
    reads.clear()
    other = iter(stream)
    other.set_state(state)
    assert [batch.tolist() for batch in other] == expected[90:]
    assert len(reads) < 400  # 98 elements are left, and blocks are read as a whole


def test_padding_of_buckets_is_counted():
    ds = grain.MapDataset.source([[1], [2, 2], [3], [4]]).to_iter_dataset()
    iterator = iter(ds.bucket_by_length([2], batch_sizes=2).map(lambda batch: batch))
    assert len(list(iterator)) == 2
    (step,) = [step for step in iterator.stats().steps if step.num_values]
    assert (step.name, step.num_values, step.num_padding) == (
        "BucketByLength([2], batch_sizes=[2])",
        8,
        3,
    )


def test_an_element_without_a_length_raises_after_the_batches_before_it():
    ds = grain.MapDataset.source([[1], [2], 3, [4]]).to_iter_dataset()
    iterator = iter(ds.bucket_by_length([2], batch_sizes=2))
    assert next(iterator).tolist() == [[1, 0], [2, 0]]
    with pytest.raises(PlanTypeError, match="type int is not known") as caught:
        next(iterator)
    assert "In BucketByLength([2], batch_sizes=[2]), added at " in caught.value.__notes__[0]


def test_an_element_that_is_too_long_raises_or_is_dropped():
    ds = grain.MapDataset.source([[1], [2] * 3, [3]]).to_iter_dataset()
    with pytest.raises(BatchError, match="An element has length 3"):
        list(ds.bucket_by_length([2], batch_sizes=2))
    assert lists(ds.bucket_by_length([2], batch_sizes=2, drop_longer=True)) == [[[1, 0], [3, 0]]]


def test_all_operations_work_in_a_loader_and_through_apply():
    operations = [
        grain.Batch(4),
        Unbatch(),
        Scan(lambda total, x: (total + int(x), np.full(1 + total % 3, total)), 0),
        BucketByLength([1, 3], batch_sizes=2),
        Window(2, stride=1, batch_fn=list),
    ]
    loader = grain.load(range(20), num_epochs=1, transformations=operations)
    ds = grain.MapDataset.range(20).to_iter_dataset().apply(operations)
    expected = [[batch.tolist() for batch in window] for window in ds]

    assert [[batch.tolist() for batch in window] for window in loader] == expected
    iterator = iter(loader)
    next(iterator)
    state = iterator.get_state()
    other = iter(loader)
    other.set_state(state)
    assert [[batch.tolist() for batch in window] for window in other] == expected[1:]


def test_a_loader_numbers_elements_after_such_an_operation_from_the_start_of_the_stream():
    class Number(grain.MapWithIndex):
        def map_with_index(self, index: int, x: Any) -> Any:
            return index, x.tolist()

    loader = grain.load(range(6), num_epochs=1, transformations=[Window(2, 1), Number()])
    iterator = iter(loader)
    first = [next(iterator), next(iterator)]
    other = iter(loader)
    other.set_state(iterator.get_state())
    assert [*first, *other] == [(n, [n, n + 1]) for n in range(5)]


def test_a_loader_refuses_random_maps_and_skipped_errors_above_such_an_operation():
    class Draw(grain.RandomMap):
        def random_map(self, x: Any, rng: np.random.Generator) -> Any:
            return x

    with pytest.raises(PlanError, match=r"RandomMap .* follows Window\(2, stride=2\)"):
        grain.load(range(6), seed=1, transformations=[Window(2), Draw()])
    with pytest.raises(PlanError, match=r"Window.* cannot list which records were skipped"):
        grain.load(range(6), transformations=[Window(2)], on_error=grain.SkipErrors(1))


def test_streams_are_concatenated_and_a_dataset_is_read_in_order():
    both = numbers(2) + numbers(3)
    assert list(both) == [0, 1, 0, 1, 2]
    assert list(grain.IterDataset.concatenate([numbers(0), numbers(2), numbers(0)])) == [0, 1]


def test_repeat_take_and_skip():
    assert list(numbers(3).skip(1).repeat(2)) == [1, 2, 1, 2]
    assert list(numbers().filter(lambda x: x % 2).skip(3).take(1)) == [7]
    assert list(numbers().take(0)) == list(numbers().skip(10)) == list(numbers().skip(99)) == []


def test_shuffle_is_the_window_shuffle_of_grains_name():
    theirs = grain.experimental.WindowShuffleIterDataset(numbers(), window_size=4, seed=7)
    assert list(numbers().shuffle(4, seed=7)) == list(theirs)
    assert sorted(numbers().seed(1).shuffle(4)) == list(range(10))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda ds: ds.window(0), PlanError, "`size` must be at least 1"),
        (lambda ds: ds.window(2, 0), PlanError, "`stride` must be at least 1"),
        (lambda ds: ds.window(2, batch_fn=3), PlanTypeError, "`batch_fn` must be callable"),
        (lambda ds: ds.scan(3, 0), PlanTypeError, "`scan` takes a function"),
        (lambda ds: ds.scan(max, {1}), PlanTypeError, "cannot be written to a checkpoint"),
        (lambda ds: ds.scan(max, {1: 2}), PlanTypeError, "`initial` contains {1: 2} of type dict"),
        (lambda ds: ds.scan(max, np.array(["a"])), PlanTypeError, "cannot be written"),
        (lambda ds: ds.skip(-1), PlanError, "`count` must be at least 0"),
        (lambda ds: ds.take("a"), PlanTypeError, "`count` must be an integer"),
        (lambda ds: ds.repeat(0), PlanError, "num_epochs must be positive, got 0"),
        (lambda ds: ds.shuffle(seed=3), PlanError, "needs the size of a buffer"),
        (lambda ds: ds.shuffle(3), PlanError, "`shuffle` requires a seed"),
        (lambda ds: ds.shuffle(0, seed=1), PlanError, "`buffer_size` must be at least 1"),
        (lambda ds: ds + 3, PlanTypeError, "`\\+` concatenates two datasets, got int"),
        (lambda ds: grain.IterDataset.concatenate([]), PlanError, "nothing to concatenate"),
        (lambda ds: grain.IterDataset.concatenate(ds), PlanTypeError, "takes a list of datasets"),
        (
            lambda ds: ds.__class__.concatenate([3]),
            PlanTypeError,
            "must be an IterDataset",
        ),
        (lambda ds: grain.MapDataset.range(3).apply(Window(2)), PlanTypeError, "needs a stream"),
        (lambda ds: ds.bucket_by_length([3]), PlanError, "Pass either `batch_sizes`"),
        (lambda ds: ds.pad_batch(2, side="up"), PlanError, '"left" or "right"'),
    ],
)
def test_what_cannot_work_is_an_error_with_a_way_out(make: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        make(numbers())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda ds: ds.unbatch(), BatchError, "has no rows. `unbatch` needs a tree of arrays"),
        (
            lambda ds: ds.map(lambda x: {"a": np.ones(2), "b": np.ones(3)}).unbatch(),
            BatchError,
            "the same number of rows",
        ),
        (lambda ds: ds.scan(lambda c, x: c, 0), PlanTypeError, "must return a pair"),
        (lambda ds: ds.scan(lambda c, x: ({x}, x), 0), PlanTypeError, "cannot be written"),
    ],
)
def test_what_fails_while_it_runs_names_the_step(make: Any, error: Any, message: str):
    with pytest.raises(error, match=message) as caught:
        list(make(numbers()))
    assert "added at" in caught.value.__notes__[0]


def test_elements_that_raise_are_skipped_and_listed_on_request():
    def parse(x: int) -> int:
        if x % 4 == 1:
            raise ValueError(f"bad {x}")
        return x

    ds = grain.MapDataset.range(10).map(parse)
    for stream in (
        ds.to_iter_dataset(on_error=grain.SkipErrors(5)),
        grain.MapDataset.range(10).to_iter_dataset(on_error=grain.SkipErrors(5)).map(parse),
    ):
        iterator = iter(stream.batch(2))
        batches = [next(iterator).tolist()]
        state = json.loads(json.dumps(iterator.get_state()))
        batches += lists(iterator)
        assert batches == [[0, 2], [3, 4], [6, 7], [8]]
        assert [record.position for record in iterator.skipped] == [1, 5, 9]
        assert iterator.stats().num_skipped == 3

        other = iter(stream.batch(2))
        other.set_state(state)
        assert lists(other) == batches[1:]
        assert [record.position for record in other.skipped] == [1, 5, 9]
    with pytest.raises(ValueError, match="bad 5"):
        list(ds.to_iter_dataset(on_error=grain.SkipErrors(1)))
    with pytest.raises(PlanTypeError, match="`on_error` must be SkipErrors"):
        ds.to_iter_dataset(on_error="skip")  # pyright: ignore[reportArgumentType]


def test_skipped_elements_below_a_step_that_holds_elements_are_refused():
    stream = grain.MapDataset.range(10).to_iter_dataset(on_error=grain.SkipErrors(5))
    with pytest.raises(PlanError, match=r"WindowShuffle.* cannot list which records were skipped"):
        iter(stream.shuffle(3, seed=1))


def test_worker_options_of_datasets_reach_the_workers():
    calls: list[int] = []
    ds = numbers().map(lambda x: x + 1)
    options = grain.WorkerOptions(worker_init_fn=lambda index, count: calls.append(index))
    with iter(
        ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1), worker_options=options)
    ) as iterator:
        assert list(iterator) == list(range(1, 11))
    with pytest.raises(PlanError, match="`worker_init_fn` is given twice"):
        ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1), print, worker_options=options)
    with pytest.raises(PlanTypeError, match="`worker_options` must be WorkerOptions"):
        ds.mp_prefetch(
            grain.MultiprocessingOptions(num_workers=1),
            worker_options=3,  # pyright: ignore[reportArgumentType]
        )


def test_load_takes_the_options_of_a_loader():
    def parse(x: int) -> int:
        return 1 // x

    loader = grain.load(
        range(3),
        num_epochs=1,
        transformations=[parse],
        on_error=grain.SkipErrors(1),
        worker_options=grain.WorkerOptions(max_restarts=1),
    )
    iterator = iter(loader)
    assert list(iterator) == [1, 0]
    assert len(iterator.skipped) == 1


@pytest.mark.parametrize(
    ("name", "of_map", "of_stream"),
    [
        ("padded_batch", "use `pad_batch(batch_size)`", "use `pad_batch(batch_size)`"),
        ("window", "call `to_iter_dataset()` before it", None),
        (
            "window_shuffle",
            "use `experimental.WindowShuffleMapDataset`",
            "use `shuffle(buffer_size, seed=)`, or shuffle the `MapDataset` before",
        ),
        ("concatenate", "use `ds + other`", "use `ds + other`"),
        ("from_generator", "use `gristmill.from_generator(", "use `gristmill.from_generator("),
        ("train_test_split", "use `split([0.8, 0.2], seed=0)`", "use `split([0.8, 0.2], seed=0)`"),
        ("shufle", "did you mean `shuffle`?", "did you mean `shuffle`?"),
        ("slice", None, "slice the `MapDataset` before `to_iter_dataset()`"),
    ],
)
def test_an_unknown_method_suggests_the_right_one(
    name: str, of_map: str | None, of_stream: str | None
):
    for ds, advice, kind in (
        (grain.MapDataset.range(3), of_map, "MapDataset"),
        (numbers(), of_stream, "IterDataset"),
    ):
        if advice is not None:
            with pytest.raises(AttributeError) as caught:
                getattr(ds, name)
            assert str(caught.value).startswith(f"`{kind}` has no `{name}`: {advice}")


def test_an_unknown_constructor_suggests_the_right_one():
    of_map, of_stream = cast("Any", grain.MapDataset), cast("Any", grain.IterDataset)
    with pytest.raises(AttributeError, match=r"^`MapDataset` has no `from_generator`: use"):
        of_map.from_generator(range)
    with pytest.raises(
        AttributeError, match=r"use `MapDataset\.source\(\.\.\.\)\.to_iter_dataset\("
    ):
        of_stream.source([1, 2])
    with pytest.raises(
        AttributeError, match=r"^`MapDataset` has no `sorce`: did you mean `source`\?$"
    ):
        _ = of_map.sorce
    assert getattr(of_map, "_private", 3) == 3


def test_an_unknown_name_without_a_similar_one_has_a_plain_error():
    with pytest.raises(AttributeError, match=r"^`IterDataset` has no `quux`.$"):
        numbers().quux()
    assert getattr(numbers(), "_private", 3) == 3


def test_the_error_of_a_users_property_is_not_replaced():
    class Own(grain.MapDataset[int]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return index

        @property
        def vocabulary(self) -> int:
            return self.missing.size  # pyright: ignore

    with pytest.raises(AttributeError, match="`MapDataset` has no `missing`"):
        _ = Own().vocabulary
    assert list(Own().take(2)) == [0, 1]


def test_iterators_of_users_have_statistics_of_their_parents():
    class Twice(grain.DatasetIterator[int]):
        def __next__(self) -> int:
            return 2 * next(self._parent)

        def get_state(self) -> Any:
            return self._parent.get_state()

        def set_state(self, state: Any) -> None:
            self._parent.set_state(state)

    iterator = Twice(iter(grain.MapDataset.range(3)))
    assert list(iterator) == [0, 2, 4]
    assert iterator.stats().num_elements == 3
    assert iterator.skipped == ()
