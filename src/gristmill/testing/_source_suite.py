"""Defines the behaviour of a data source as a suite of tests to subclass."""

import pickle
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any, TypeAlias, final

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from gristmill._api.loader.loader import DataLoader
from gristmill._base.trees.columns import SupportsColumns
from gristmill._data.sampling.samplers import SequentialSampler
from gristmill.options import ReadOptions
from gristmill.testing._records import difference, overwrite
from gristmill.types import Element, RandomAccessDataSource, Span, SupportsGetItems

Source: TypeAlias = RandomAccessDataSource[Any]

MAX_RECORDS = 48
"""Maximum number of records that are read and compared. They are spread evenly over the source."""

NUM_THREADS = 8

MAX_REPR_CHARS = 199


class SourceSuite:
    """Tests that every data source must pass.

    Subclass it in a test module and define a pytest fixture `source` that returns a new source for
    each test. The source may have any length, and at most a few dozen of its records are read.
    Methods that a source may have beyond `__len__` and `__getitem__` (`__getitems__` and
    `read_columns`) are tested if it has them. A failed test describes what is required of a source,
    and how this one differs.

    >>> import pytest
    >>> from gristmill.sources import RangeDataSource
    >>> class TestEvenNumbers(SourceSuite):
    ...     @pytest.fixture
    ...     def source(self):
    ...         return RangeDataSource(0, 10, 2)

    Each test takes one argument:

    Args:
        source: The source to test: the value of the fixture.
    """

    def test_length_does_not_change(self, source: Source) -> None:
        """Require the same `len` before and after reading."""
        with _requirement("`len(source)` must not change."):
            before = len(source)
            assert len(source) == before, f"It was {before}, and then {len(source)}."
            _read_each(source, _choose_indices(source))
            assert len(source) == before, f"It was {before}, and {len(source)} after reading."

    def test_index_out_of_bounds_raises_index_error(self, source: Source) -> None:
        """Require `IndexError`, for negative indices too."""
        count = len(source)
        with _requirement(f"A source must raise IndexError for an index outside [0, {count})."):
            for index in (-1, count, count + 5):
                _expect_index_error(f"`source[{index}]`", lambda index=index: source[index])
            getitems = _get_getitems(source)
            if getitems is not None:
                inside = _choose_indices(source)
                for indices in ([-1], [count], [*inside, count], range(count, count + 2)):
                    call = f"`source.__getitems__({indices})`"
                    _expect_index_error(call, lambda indices=indices: getitems(indices))

    def test_any_integer_type_is_an_index(self, source: Source) -> None:
        """Require that NumPy integers and objects with `__index__` work like an `int`."""
        with _requirement("A source must accept NumPy integers and any object with `__index__`."):
            for index in _choose_indices(source):
                expected = source[index]
                for kind in (np.int64, np.uint64, np.int32, _IndexObject):
                    key: Any = kind(index)
                    _expect_same(expected, source[key], f"source[{kind.__name__}({index})]")

    def test_reading_again_returns_the_same_record(self, source: Source) -> None:
        """Require that a record depends on its index alone, not on what was read before."""
        indices = _choose_indices(source)
        with _requirement("A source must return the same record for the same index each time."):
            before = _read_each(source, indices)
            _expect_all_same(before, _read_each(source, indices), indices)
            backwards = indices[::-1]
            _expect_all_same(before[::-1], _read_each(source, backwards), backwards)

    def test_writing_into_a_record_changes_no_other_read(self, source: Source) -> None:
        """Require that writing into the arrays of a record changes neither source nor records."""
        indices = _choose_indices(source)
        with _requirement(
            "Writing into the arrays of a record must change neither other records nor what the "
            "source returns later. Return copies, or read-only arrays."
        ):
            before = pickle.loads(_dumps(_read_each(source, indices)))
            for index, expected in zip(indices, before, strict=True):
                overwrite(source[index])
                _expect_same(expected, source[index], f"source[{index}]")
            getitems = _get_getitems(source)
            if getitems is not None:
                records = getitems([index for index in indices for _ in range(2)])
                for record in records[::2]:
                    overwrite(record)
                _expect_all_same(before, records[1::2], indices)
                _expect_all_same(before, _read_each(source, indices), indices)

    def test_getitems_returns_the_records_of_getitem(self, source: Source) -> None:
        """Require that `__getitems__`, if it exists, returns the records of `__getitem__`."""
        getitems = _get_getitems(source)
        if getitems is None:
            return
        spans = _make_spans(source)
        for indices in [*spans, *(list(map(int, span)) for span in spans)]:
            shown = f"{type(indices).__name__} of {len(indices)} indices"
            with _requirement(f"`__getitems__` must return one record for each of a {shown}."):
                records = getitems(indices)
                assert len(records) == len(indices), f"It returned {len(records)}."
                numbers = [int(index) for index in indices]
                _expect_all_same(_read_each(source, numbers), records, numbers)

    def test_read_columns_returns_the_records_of_getitem(self, source: Source) -> None:
        """Require that `read_columns` of a columnar source returns the records of `__getitem__`."""
        if not isinstance(source, SupportsColumns) or not source.is_columnar:
            return
        for indices in _make_spans(source):
            if isinstance(indices, range) and indices.step < 0:
                continue  # the loader converts such a range to an array
            shown = f"{type(indices).__name__} of {len(indices)} indices"
            with _requirement(f"`read_columns` must return one row for each of a {shown}."):
                columns = source.read_columns(indices)
                rows = columns if isinstance(columns, list) else columns.rows()
                assert len(rows) == len(indices), f"It returned {len(rows)}."
                numbers = [int(index) for index in indices]
                _expect_all_same(_read_each(source, numbers), rows, numbers)

    def test_unread_source_can_be_pickled(self, source: Source) -> None:
        """Require that a pickled copy of an unread source reads the same records.

        Both `pickle` and `cloudpickle` are tested.
        """
        _expect_same_from_pickles(source, _choose_indices(source), "An unread source")

    def test_source_in_use_can_be_pickled(self, source: Source) -> None:
        """Require that a pickled copy of a source in use reads the same records."""
        indices = _choose_indices(source)
        _read_each(source, indices)
        _expect_same_from_pickles(source, indices, "A source that is in use")

    def test_threads_can_share_the_source(self, source: Source) -> None:
        """Require that threads that read at the same time, first reads included, read the same."""
        indices = _choose_indices(source)
        getitems = _get_getitems(source)
        barrier = Barrier(NUM_THREADS)

        def read(number: int) -> list[Element]:
            first = number * len(indices) // NUM_THREADS
            rotated = [*indices[first:], *indices[:first]]
            if getitems is None or number % 2:
                return _read_each(source, rotated)
            return list(getitems(rotated))

        def read_with_others(number: int) -> list[Element]:
            barrier.wait()
            return read(number)

        with _requirement(f"{NUM_THREADS} threads must be able to read from a source at a time."):
            with ThreadPoolExecutor(NUM_THREADS) as pool:
                records = list(pool.map(read_with_others, range(NUM_THREADS)))
            for number in range(NUM_THREADS):
                _expect_same(read(number), records[number], f"thread {number}: records")

    def test_worker_process_reads_the_same_records(self, source: Source) -> None:
        """Require that a loader yields the same records with a worker process and without."""
        indices = list(range(min(len(source), MAX_RECORDS)))
        if not indices:
            return
        with _requirement("A source must return the same records in a worker process."):
            from_worker, from_here = (  # first the worker, while nothing is open yet
                list(
                    DataLoader(
                        data_source=source,
                        sampler=SequentialSampler(len(indices)),
                        worker_count=worker_count,
                        read_options=ReadOptions(num_threads=0),
                    )
                )
                for worker_count in (1, 0)
            )
            assert len(from_worker) == len(from_here), (
                f"It returned {len(from_worker)} there, and {len(from_here)} here."
            )
            _expect_all_same(from_here, from_worker, indices)

    def test_repr_is_short_and_stable(self, source: Source) -> None:
        """Require a `repr` that identifies this source in each run, since it goes into states."""
        before = repr(source)
        copy = pickle.loads(_dumps(source))
        with _requirement("The `repr` of a source goes into checkpoints."):
            assert len(before) <= MAX_REPR_CHARS, (
                f"It must be shorter than 200 characters, and is {len(before)}: {before[:40]}..."
            )
            assert " at 0x" not in before, f"It must not contain an address, and is {before}."
            _read_each(source, _choose_indices(source))
            assert repr(source) == before, f"It was {before}, and {source!r} after reading."
            assert repr(copy) == before, f"It is {before}, and {copy!r} after pickling."


@final
class _IndexObject:
    """An object that is not an integer and can be used as an index."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


@contextmanager
def _requirement(description: str) -> Generator[None]:
    """Add the description of a requirement to an error that the body raises."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{description} {error}") from None
    except Exception as error:
        error.add_note(description)
        raise


def _choose_indices(source: Source) -> list[int]:
    """Return a few indices, including the first and the last."""
    count = len(source)
    return np.unique(np.linspace(0, count - 1, min(count, MAX_RECORDS)).astype(np.int64)).tolist()


def _make_spans(source: Source) -> list[Span]:
    """Return indices in all orders in which blocks of records are read."""
    count, chosen = len(source), np.array(_choose_indices(source), np.int64)
    few = min(count, MAX_RECORDS)
    return [
        range(few),
        range(count - few, count),
        range(0, count, max(1, count // 7)),
        range(few - 1, -1, -1),
        range(0),
        np.concatenate([chosen[1::2], chosen[::-1], chosen[:1], chosen[:1]]),
        chosen[:0],
    ]


def _get_getitems(source: Source) -> Callable[[Any], Sequence[Element]] | None:
    return source.__getitems__ if isinstance(source, SupportsGetItems) else None


def _dumps(value: object) -> bytes:
    """Pickle as the engine does, which includes classes that a script defines."""
    return cloudpickle.dumps(value)  # pyright: ignore[reportUnknownMemberType]


def _read_each(source: Source, indices: Sequence[int]) -> list[Element]:
    return [source[index] for index in indices]


def _expect_index_error(call: str, read: Callable[[], object]) -> None:
    try:
        read()
    except IndexError:
        return
    except Exception as error:
        raise AssertionError(f"{call} raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{call} raised nothing.")


def _expect_same(expected: Element, actual: Element, path: str) -> None:
    found = difference(expected, actual, path)
    assert found is None, f"{found}."


def _expect_all_same(
    expected: Sequence[Element], actual: Sequence[Element], indices: Sequence[int]
) -> None:
    """Compare records one by one. The path in the message contains the index of the record."""
    for index, one, other in zip(indices, expected, actual, strict=True):
        _expect_same(one, other, f"source[{index}]")


def _expect_same_from_pickles(source: Source, indices: list[int], subject: str) -> None:
    count = len(source)
    kinds = {"pickle": pickle.dumps, "cloudpickle": _dumps}
    pickles: dict[str, bytes] = {}
    for name, dumps in kinds.items():  # all of them before the source is read
        with _requirement(f"{subject} must be picklable by {name}."):
            pickles[name] = dumps(source)
    for name, data in pickles.items():
        with _requirement(f"{subject} must read the same records after pickling by {name}."):
            copy: Source = pickle.loads(data)
            assert len(copy) == count, f"Its length is {len(copy)}, not {count}."
            _expect_all_same(_read_each(source, indices), _read_each(copy, indices), indices)
