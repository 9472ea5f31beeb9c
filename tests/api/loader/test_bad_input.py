import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import (
    BatchError,
    GristmillError,
    GristmillWarning,
    MissingExtraError,
    PlanError,
    PlanTypeError,
    SourceError,
)

INLINE = gm.ReadOptions(num_threads=0)
HERE = Path(__file__).name


def loader(source: Any, *operations: Any, **options: Any) -> gm.DataLoader:
    sampler = options.pop("sampler", None) or gm.SequentialSampler(len(source), seed=1)
    return gm.DataLoader(data_source=source, sampler=sampler, operations=operations, **options)


def failure(broken: gm.DataLoader) -> Exception:
    try:
        list(broken)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def line_of(text: str) -> int:
    """Find the line of this file that holds a text, for notes to point at."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = [
        number for number, line in enumerate(lines, 1) if text in line and "line_of" not in line
    ]
    assert len(found) == 1
    return found[0]


# Arguments: integers.

INTEGERS: list[tuple[Any, str, dict[str, Any]]] = [
    (gm.Batch, "batch_size", {}),
    (gm.BatchOperation, "batch_size", {}),
    (gm.BatchTransform, "batch_size", {}),
    (gm.ShardOptions, "shard_index", {"shard_count": 9}),
    (gm.ShardOptions, "shard_count", {"shard_index": 0}),
    (gm.ReadOptions, "num_threads", {}),
    (gm.ReadOptions, "prefetch_buffer_size", {}),
    (gm.MultiprocessingOptions, "num_workers", {}),
    (gm.MultiprocessingOptions, "per_worker_buffer_size", {}),
    (gm.SequentialSampler, "num_records", {}),
    (gm.SequentialSampler, "seed", {"num_records": 9}),
    (gm.IndexSampler, "num_records", {}),
    (gm.IndexSampler, "num_epochs", {"num_records": 9}),
    (gm.IndexSampler, "seed", {"num_records": 9}),
    (gm.RangeDataSource, "start", {"stop": 9, "step": 1}),
    (gm.RangeDataSource, "stop", {"start": 0, "step": 1}),
    (gm.RangeDataSource, "step", {"start": 0, "stop": 9}),
    (gm.load, "num_epochs", {"source": range(9)}),
    (gm.load, "seed", {"source": range(9)}),
    (gm.load, "batch_size", {"source": range(9)}),
    (gm.load, "worker_count", {"source": range(9)}),
    (loader, "worker_count", {"source": range(9)}),
    (loader, "worker_buffer_size", {"source": range(9)}),
]
by_name = pytest.mark.parametrize(
    ("kind", "name", "others"), INTEGERS, ids=[f"{k.__name__}-{n}" for k, n, _ in INTEGERS]
)


@by_name
@pytest.mark.parametrize("value", [2.0, "2", np.float32(2), b"2", True, [2], 2j], ids=repr)
def test_anything_but_an_integer_is_refused_by_name(
    kind: Any, name: str, others: dict[str, Any], value: Any
):
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be an integer, got "):
        kind(**{name: value}, **others)


@by_name
@pytest.mark.parametrize("value", [np.int8(2), np.uint64(2), np.array(2)], ids=repr)
def test_numpy_integers_are_integers(kind: Any, name: str, others: dict[str, Any], value: Any):
    made, expected = kind(**{name: value}, **others), kind(**{name: 2}, **others)
    assert made == expected or str(made).partition(" at ")[0] == str(expected).partition(" at ")[0]


@by_name
def test_negative_numbers_are_refused_by_name(kind: Any, name: str, others: dict[str, Any]):
    if kind is gm.RangeDataSource:
        assert len(kind(**{name: -1}, **others)) >= 0
        return
    phrases = rf"`{name}` must be at least [01]|{name} must be (non-negative|positive)"
    expected = rf"(?i)^({phrases}|(Shard )?{name} must be .*), got -1\."
    with pytest.raises(PlanError, match=expected):
        kind(**{name: -1}, **others)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(size: int):
    with pytest.raises(PlanError, match=rf"^batch_size must be positive, got {size}\."):
        gm.load([1, 2], batch_size=size)


def test_an_oversized_seed_is_refused():
    with pytest.raises(
        PlanError, match=r"^Seed must be an integer between 0 and 2\*\*32-1, got 4294967296\."
    ):
        gm.load([1, 2], seed=2**32)


def test_shuffling_without_a_seed_is_refused():
    with pytest.raises(PlanError, match=r"^Shuffling requires specifying a seed\. Pass one"):
        gm.load([1, 2], shuffle=True)


@pytest.mark.parametrize("index", [2, 3, 100])
def test_a_shard_index_out_of_range_is_refused(index: int):
    message = rf"^Shard shard_index must be in \[0, 1\], as `shard_count` is 2, got {index}\.$"
    with pytest.raises(PlanError, match=message):
        gm.ShardOptions(index, 2)


def test_no_shards_at_all_are_refused():
    with pytest.raises(PlanError, match=r"^`shard_count` must be at least 1, got 0\."):
        gm.ShardOptions(0, 0)


@pytest.mark.parametrize("value", ["yes", None, 2, 0.0], ids=repr)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (lambda **kw: gm.Batch(2, **kw), "drop_remainder"),
        (lambda **kw: gm.ShardOptions(0, 1, **kw), "drop_remainder"),
        (lambda **kw: gm.ShardByJaxProcess(**kw), "drop_remainder"),
        (lambda **kw: gm.IndexSampler(2, seed=1, **kw), "shuffle"),
        (lambda **kw: gm.MultiprocessingOptions(**kw), "enable_profiling"),
        (lambda **kw: loader([1, 2], **kw), "enable_profiling"),
        (lambda **kw: gm.load([1, 2], seed=1, **kw), "shuffle"),
        (lambda **kw: gm.load([1, 2], batch_size=1, **kw), "drop_remainder"),
    ],
)
def test_a_claim_that_is_neither_true_nor_false_is_refused(kind: Any, name: str, value: Any):
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be True or False, got "):
        kind(**{name: value})


def test_no_worker_count_leaves_the_choice_to_gristmill():
    assert list(loader([1, 2], worker_count=None)) == [1, 2]


@pytest.mark.parametrize("value", [16, gm.ReadOptions, "fast"], ids=repr)
def test_read_options_of_another_kind_are_refused(value: Any):
    with pytest.raises(
        PlanTypeError, match=r"^`read_options` must be ReadOptions, got .* Pass `Read"
    ):
        loader([1, 2], read_options=value)


def test_sharding_by_jax_process_takes_this_process():
    assert gm.ShardByJaxProcess(drop_remainder=True) == gm.ShardByJaxProcess(True)
    options = gm.ShardByJaxProcess()
    assert (options.shard_index, options.shard_count) == (0, 1)


def test_sharding_by_jax_process_without_jax_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    message = (
        r"^`ShardByJaxProcess` needs the package 'jax'\. .*`pip install .gristmill\[jax\].`\.$"
    )
    with pytest.raises(MissingExtraError, match=message):
        gm.ShardByJaxProcess()


# The source and its sampler.


def test_a_sampler_longer_than_its_source_is_refused_when_the_loader_is_built():
    with pytest.raises(PlanError, match=r"^`sampler` needs 6 records, the source has 5\. Pass"):
        loader(range(5), sampler=gm.IndexSampler(6, num_epochs=1))


def test_a_sampler_shorter_than_its_source_reads_only_that_much():
    assert list(loader(range(5), sampler=gm.IndexSampler(3, num_epochs=2))) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("source", [[], (), range(0), np.zeros((0, 3))], ids=repr)
def test_an_empty_source_is_refused(source: Any):
    with pytest.raises(PlanError, match=r"^`num_records` must be at least 1, got 0\."):
        loader(source)


@pytest.mark.parametrize("source", [[], (), range(0), np.zeros((0, 3))], ids=repr)
def test_an_empty_source_is_refused_by_load_under_its_own_name(source: Any):
    with pytest.raises(PlanError, match=r"source.*(empty|no record|0 records)"):
        gm.load(source)


@pytest.mark.parametrize("source", [iter([1]), 3, None, list, {"x": np.zeros(3)}, "text"])
def test_what_is_no_source_is_refused_by_load_too(source: Any):
    with pytest.raises(PlanTypeError, match="source"):
        gm.load(source)


@pytest.mark.parametrize("wrong", [gm.Batch(2), abs, None, 3], ids=repr)
def test_transformations_that_are_no_list_are_refused_by_name(wrong: Any):
    with pytest.raises(PlanTypeError, match=r"^`transformations` must be a list, got "):
        gm.load([1, 2], transformations=wrong)


class Lies:
    """A source that claims to be longer than it is."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return [0, 1, 2][index]


class MiscountsAtOnce(Lies):
    def __init__(self, extra: int) -> None:
        self.extra = extra

    def __getitems__(self, indices: Any) -> list[int]:
        return [0] * (len(indices) + self.extra)


@pytest.mark.parametrize("options", [INLINE, gm.ReadOptions()])
def test_a_source_shorter_than_its_length_is_reported_at_the_record(options: gm.ReadOptions):
    iterator = iter(loader(Lies(), read_options=options))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(IndexError) as caught:
        next(iterator)
    notes = "\n".join(caught.value.__notes__)
    assert "record 3 of the source" in notes
    assert "The length of the source is 5" in notes
    assert HERE in notes


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_source_that_miscounts_is_reported(extra: int):
    error = failure(loader(MiscountsAtOnce(extra)))
    assert isinstance(error, SourceError)
    assert f"`__getitems__` returned {1 + extra} records for 1 ind" in str(error)
    assert any(HERE in note for note in error.__notes__)


def test_a_source_that_fails_at_many_but_not_at_one_is_reported_with_the_users_line():
    class FailsAtOnce(Lies):
        def __getitems__(self, indices: Any) -> list[int]:
            raise OSError("disk")

    error = failure(loader(FailsAtOnce()))
    assert isinstance(error, OSError)
    assert any(HERE in note for note in error.__notes__)


# Steps.


def test_a_plain_function_is_taken_as_a_map():
    assert list(loader([1, 2], lambda x: -x)) == [-1, -2]


def test_a_transform_class_instead_of_an_instance_is_refused():
    class Decode(gm.Map):
        def map(self, element: Any) -> Any:
            return element

    with pytest.raises(
        PlanTypeError, match=r"^`operations\[0\]` is the class Decode\. Pass an inst"
    ):
        loader([1, 2], Decode)


def test_a_batch_that_would_never_come_is_warned_of_at_the_users_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gm.load(range(3), batch_size=4, drop_remainder=True, num_epochs=1)  # warned of here
    assert [warning.category for warning in caught] == [GristmillWarning]
    assert str(caught[0].message).startswith(
        "There will be no batch: `drop_remainder` needs 4 elements, there are at most 3."
    )
    assert caught[0].filename == __file__
    assert caught[0].lineno == line_of("# warned of here")


def test_a_shard_that_leaves_too_few_records_for_a_batch_is_warned_of():
    with pytest.warns(GristmillWarning, match=r"needs 3 elements, there are at most 2\."):
        loader(range(6), gm.Batch(3, True), shard_options=gm.ShardOptions(2, 3))


class Fails:
    """Raises at record 3, in whatever role it is asked to play."""

    def __init__(self, error: type[BaseException] = KeyError) -> None:
        self.error = error

    def at(self, element: Any) -> Any:
        if np.any(np.asarray(element) == 3):
            raise self.error("broken")
        return element


class FailingMap(Fails, gm.Map):
    def map(self, element: Any) -> Any:
        return self.at(element)


class FailingColumns(FailingMap):
    def map_batch(self, columns: Any) -> Any:
        return self.at(columns)


class FailingIndexed(Fails, gm.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return self.at(element)


class FailingRandom(Fails, gm.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return self.at(element)


class FailingFilter(Fails, gm.Filter):
    def filter(self, element: Any) -> bool:
        return self.at(element) is not None


class FailingFlatMap(Fails, gm.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> Any:
        return [self.at(element)]


STEPS = [FailingMap, FailingColumns, FailingIndexed, FailingRandom, FailingFilter, FailingFlatMap]


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("source", [list(range(6)), np.arange(6)], ids=["rows", "columns"])
def test_a_transform_that_raises_keeps_its_type_and_gains_step_line_and_record(
    kind: Any, source: Any
):
    broken = gm.DataLoader(  # the user's line
        data_source=source,
        sampler=gm.IndexSampler(6, shuffle=True, seed=2, num_epochs=1),
        operations=[lambda x: x, kind()] if kind is not FailingColumns else [kind()],
    )
    error = failure(broken)
    assert type(error) is KeyError
    (note,) = error.__notes__
    assert kind.__name__ in note
    assert f"{__file__}:{line_of('# the user' + chr(39) + 's line')}" in note
    assert "record 3 of the source" in note


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("source", [list(range(6)), np.arange(6)], ids=["rows", "columns"])
@pytest.mark.parametrize("options", [INLINE, gm.ReadOptions()], ids=["inline", "ahead"])
def test_a_transform_that_raises_stop_iteration_does_not_end_the_stream(
    kind: Any, source: Any, options: gm.ReadOptions
):
    broken = loader(source, kind(StopIteration), read_options=options)
    iterator = iter(broken)
    for _ in range(3):
        next(iterator)
    with pytest.raises(
        RuntimeError, match=r"StopIteration, which would have ended the stream"
    ) as e:
        next(iterator)
    assert any("record 3 of the source" in note for note in e.value.__notes__)


def _stops(*_: Any) -> Any:
    raise StopIteration


class StopsAtColumns(gm.Map):
    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, columns: Any) -> Any:
        raise StopIteration


class StopsAtOnce(Lies):
    def __getitems__(self, indices: Any) -> Any:
        raise StopIteration


class StopsAtOne(Lies):
    def __getitem__(self, index: int) -> int:
        raise StopIteration


class StoppingSampler:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise StopIteration


@pytest.mark.parametrize(
    "broken",
    [
        loader([1, 2], gm.Batch(2, batch_fn=_stops)),
        loader([1, 2], gm.FilterOperation(bool), gm.Batch(2, batch_fn=_stops)),
        loader(np.arange(3), StopsAtColumns(), gm.Batch(2)),
        loader(StopsAtOnce()),
        loader([1, 2, 3], sampler=StoppingSampler()),
        loader([1, 2], gm.Batch(2), _stops),
    ],
    ids=["batch_fn", "sparse batch_fn", "map_batch", "getitems", "sampler", "map"],
)
def test_stop_iteration_of_the_users_code_never_ends_the_stream_quietly(broken: gm.DataLoader):
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(broken)


def test_a_flat_map_that_yields_no_sequence_is_reported_at_its_record():
    class NoSequence(gm.FlatMap):
        max_fan_out = 2

        def flat_map(self, element: Any) -> Any:
            return None if element == 2 else [element]

    error = failure(loader([1, 2], NoSequence()))
    assert isinstance(error, TypeError)
    assert "record 1 of the source" in error.__notes__[0]


def test_a_filter_that_yields_no_truth_is_reported_at_its_record():
    error = failure(loader(list(np.zeros((2, 2))), gm.FilterOperation(lambda x: x)))
    assert isinstance(error, ValueError)
    assert "record 0 of the source" in error.__notes__[0]


# Columns.


class Columns(gm.Map):
    """A map whose `map_batch` yields what it is asked to."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, columns: Any) -> Any:
        return self.result(columns)


@pytest.mark.parametrize(
    ("result", "reported"),
    [
        (lambda columns: columns[:0], r"columns of shape \(0,\) for 1 element"),
        (lambda columns: {"x": columns, "y": np.zeros(7)}, r'columns\["y"\] of shape \(7,\) for'),
        (lambda columns: 3, r"columns of shape \(\) for"),
        (lambda columns: columns.tolist(), r"columns\[0\] of shape \(\) for"),
    ],
)
def test_map_batch_must_yield_one_item_for_each_element(result: Any, reported: str):
    message = rf"^`map_batch` of .*Columns.* returned {reported}"
    with pytest.raises(BatchError, match=message) as caught:
        list(loader(np.arange(3), Columns(result)))
    assert any(HERE in note for note in caught.value.__notes__)


def test_map_batch_that_forgets_to_return_is_an_error_in_a_batch():
    with pytest.raises(GristmillError, match=r"map_batch|None"):
        list(loader(np.arange(3), Columns(lambda columns: None), gm.Batch(2)))


def test_a_masked_array_as_a_source_is_refused():
    with pytest.raises(PlanError, match="mask"):
        loader(np.ma.array([1, 2, 3], mask=[False, True, False]), gm.Batch(3))


# Records that do not fit into one batch.

sparse = pytest.mark.parametrize(
    "before", [[], [gm.FilterOperation(lambda x: True)]], ids=["dense", "sparse"]
)


@sparse
def test_ragged_records_are_reported_by_leaf_step_record_and_line(before: list[Any]):
    records = [{"image": np.zeros((28, 28))}] * 4 + [{"image": np.zeros((28, 27))}] * 2
    error = failure(loader(records, *before, gm.Batch(3)))
    assert isinstance(error, BatchError)
    assert str(error).startswith(
        'batch["image"]: shapes (28, 28) and (28, 27). Crop, resize or pad'
    )
    (note,) = error.__notes__
    assert "Batch(3)" in note
    assert "record 4 of the source" in note
    assert HERE in note


@sparse
def test_mixed_types_are_reported_by_leaf_and_record(before: list[Any]):
    records = [{"label": 1}, {"label": 2}, {"label": "three"}]
    error = failure(loader(records, *before, gm.Batch(3)))
    assert isinstance(error, BatchError)
    assert str(error).startswith('batch["label"]: int and str.')
    assert "record 2 of the source" in error.__notes__[0]


@sparse
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_none_record_is_an_error_in_a_batch(before: list[Any], size: int):
    error = failure(loader([0, 1, None, 3], *before, gm.Batch(size)))
    assert isinstance(error, BatchError)
    assert str(error).startswith("batch: a record is None. Filter such records out")
    assert "record 2 of the source" in error.__notes__[0]


def test_a_map_that_forgets_to_return_is_an_error_in_a_batch():
    with pytest.raises(BatchError, match=r"^batch: a record is None\."):
        list(loader([0, 1], lambda x: None, gm.Batch(2)))


@sparse
@pytest.mark.parametrize(
    ("records", "dtype"),
    [
        ([np.int8(1), np.int32(2)], "int32"),
        ([np.float16(1), np.float64(2)], "float64"),
        ([1, 2.5], "float64"),
        ([np.array([1], np.uint8), np.array([300], np.int16)], "int16"),
        ([np.array([1.5], np.float32), np.array([2**30 + 1])], "float64"),
    ],
    ids=repr,
)
def test_mixed_widths_promote_as_numpy_does(before: list[Any], records: list[Any], dtype: str):
    (batch,) = loader(records, *before, gm.Batch(2))
    assert batch.dtype == dtype == np.stack(records).dtype
    assert batch.tolist() == np.stack(records).tolist()


def test_an_error_of_batch_fn_gains_step_and_line():
    error = failure(loader(range(6), gm.Batch(2, batch_fn=lambda rows: 1 // rows[0])))
    assert isinstance(error, ZeroDivisionError)
    assert "Batch(2)" in error.__notes__[0]
    assert HERE in error.__notes__[0]


def test_a_note_is_added_once_even_if_one_object_is_raised_again_and_again():
    shared = ValueError("the same object")

    def fail(element: Any) -> Any:
        raise shared

    iterator = iter(loader(range(6), fail))
    for _ in range(3):
        with pytest.raises(ValueError, match="the same object"):
            next(iterator)
    assert len(shared.__notes__) == 1


def test_a_users_file_beside_the_package_is_the_users(tmp_path: Path):
    beside = f"{Path(gm.__file__).parent}_user/train.py"
    program = "def build(load):\n    return load(range(3), transformations=[lambda x: 1 // 0])\n"
    namespace: dict[str, Any] = {}
    exec(compile(program, beside, "exec"), namespace)
    error = failure(namespace["build"](gm.load))
    assert f"{beside}:2" in error.__notes__[0]
