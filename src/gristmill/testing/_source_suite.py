"""What a source promises, as a suite of tests that anyone can subclass."""

import pickle
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any, final

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from gristmill._columns import SupportsColumns
from gristmill.loader import DataLoader
from gristmill.options import ReadOptions
from gristmill.order import SequentialSampler
from gristmill.testing._records import difference, overwrite
from gristmill.types import Element, Span, SupportsGetItems

MOST_READ = 48
"""Records of a source that are read and compared; of more, as many are chosen evenly."""

NUM_THREADS = 8

LONGEST_REPR = 199


class SourceSuite:
    """The tests that every source passes: subclass it, and give a pytest fixture `source`.

    The fixture makes a fresh source for each test, of any length; a few dozen records at most are
    read. What a source may offer beyond `__len__` and `__getitem__` (`__getitems__`, columns) is
    tested where it does. A failure tells what is expected of a source, and where this one differs.

    >>> import pytest
    >>> from gristmill.sources import RangeDataSource
    >>> class TestEvenNumbers(SourceSuite):
    ...     @pytest.fixture
    ...     def source(self):
    ...         return RangeDataSource(0, 10, 2)
    """

    def test_its_length_stays_what_it_is(self, source: Any) -> None:
        """Expect the same `len` before and after reading."""
        with _promised("`len(source)` must not change."):
            before = len(source)
            assert len(source) == before, f"It was {before}, and then {len(source)}."
            _read_each(source, _some(source))
            assert len(source) == before, f"It was {before}, and {len(source)} after reading."

    def test_an_index_outside_is_refused(self, source: Any) -> None:
        """Expect `IndexError`, for negative indices too."""
        count = len(source)
        with _promised(f"A source must raise IndexError for an index outside [0, {count})."):
            for index in (-1, count, count + 5):
                _expect_index_error(f"`source[{index}]`", lambda index=index: source[index])
            read_many = _reader_of_many(source)
            if read_many is not None:
                for indices in ([-1], [count], [*_some(source), count], range(count, count + 2)):
                    told = f"`source.__getitems__({indices})`"
                    _expect_index_error(told, lambda many=indices: read_many(many))

    def test_any_integer_is_an_index(self, source: Any) -> None:
        """Expect NumPy's integers and objects with `__index__` to do as well as an `int`."""
        with _promised("A source must take NumPy's integers and anything that has `__index__`."):
            for index in _some(source):
                wanted = source[index]
                for kind in (np.int64, np.uint64, np.int32, _Index):
                    told = f"source[{kind.__name__}({index})]"
                    _expect_same(wanted, source[kind(index)], told)

    def test_reading_again_gives_the_same_record(self, source: Any) -> None:
        """Expect a record to depend on its index alone, not on what was read before."""
        indices = _some(source)
        with _promised("A source must give the same record for the same index each time."):
            before = _read_each(source, indices)
            _expect_all_same(before, _read_each(source, indices), indices)
            backwards = indices[::-1]
            _expect_all_same(before[::-1], _read_each(source, backwards), backwards)

    def test_a_record_belongs_to_who_read_it(self, source: Any) -> None:
        """Expect that writing into the arrays of one record changes no other."""
        indices = _some(source)
        with _promised(
            "What is written into the arrays of a record must not change what the source gives "
            "later, nor another record. Give copies, or arrays that are read-only."
        ):
            before = pickle.loads(_dumps(_read_each(source, indices)))
            for index, wanted in zip(indices, before, strict=True):
                overwrite(source[index])
                _expect_same(wanted, source[index], f"source[{index}]")
            read_many = _reader_of_many(source)
            if read_many is not None:
                records = read_many([index for index in indices for _ in range(2)])
                for record in records[::2]:
                    overwrite(record)
                _expect_all_same(before, records[1::2], indices)
                _expect_all_same(before, _read_each(source, indices), indices)

    def test_many_records_at_once_are_those_read_one_by_one(self, source: Any) -> None:
        """Expect `__getitems__`, if there is one, to give what `__getitem__` gives."""
        read_many = _reader_of_many(source)
        if read_many is None:
            return
        spans = _spans(source)
        for indices in [*spans, *(list(map(int, span)) for span in spans)]:
            given = f"{type(indices).__name__} of {len(indices)} indices"
            with _promised(f"`__getitems__` must give one record for each of a {given}."):
                records = read_many(indices)
                assert len(records) == len(indices), f"It gave {len(records)}."
                numbers = [int(index) for index in indices]
                _expect_all_same(_read_each(source, numbers), records, numbers)

    def test_columns_are_the_records_read_one_by_one(self, source: Any) -> None:
        """Expect `read_columns`, of a source that is columnar, to give what `__getitem__` gives."""
        if not isinstance(source, SupportsColumns) or not source.is_columnar:
            return
        for indices in _spans(source):
            if isinstance(indices, range) and indices.step < 0:
                continue  # the loader makes an array of it
            given = f"{type(indices).__name__} of {len(indices)} indices"
            with _promised(f"`read_columns` must give one row for each of a {given}."):
                made = source.read_columns(indices)
                rows = made if isinstance(made, list) else made.rows()
                assert len(rows) == len(indices), f"It gave {len(rows)}."
                numbers = [int(index) for index in indices]
                _expect_all_same(_read_each(source, numbers), rows, numbers)

    def test_it_can_be_pickled_before_it_is_read(self, source: Any) -> None:
        """Expect a copy of an unread source to read the same, by `pickle` and `cloudpickle`."""
        _expect_copies_that_read_the_same(source, _some(source), "An unread source")

    def test_it_can_be_pickled_after_it_is_read(self, source: Any) -> None:
        """Expect a copy of a source that is in use to read the same."""
        indices = _some(source)
        _read_each(source, indices)
        _expect_copies_that_read_the_same(source, indices, "A source that is in use")

    def test_threads_may_share_it(self, source: Any) -> None:
        """Expect threads that read at the same time, the first reads included, to get the same."""
        indices = _some(source)
        read_many = _reader_of_many(source)
        gate = Barrier(NUM_THREADS)

        def read(number: int) -> list[Element]:
            first = number * len(indices) // NUM_THREADS
            turned = [*indices[first:], *indices[:first]]
            if read_many is None or number % 2:
                return _read_each(source, turned)
            return list(read_many(turned))

        def read_with_others(number: int) -> list[Element]:
            gate.wait()
            return read(number)

        with _promised(f"{NUM_THREADS} threads must be able to read from a source at a time."):
            with ThreadPoolExecutor(NUM_THREADS) as pool:
                records = list(pool.map(read_with_others, range(NUM_THREADS)))
            for number in range(NUM_THREADS):
                _expect_same(read(number), records[number], f"thread {number}: records")

    def test_a_worker_process_reads_the_same(self, source: Any) -> None:
        """Expect a loader to give the same stream with a worker process and without."""
        indices = list(range(min(len(source), MOST_READ)))
        if not indices:
            return
        with _promised("A source must give the same records in a worker process."):
            there, here = (  # there first, where nothing is open yet
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
            assert len(there) == len(here), f"It gave {len(there)} there, and {len(here)} here."
            _expect_all_same(here, there, indices)

    def test_its_repr_is_short_and_the_same_everywhere(self, source: Any) -> None:
        """Expect a `repr` that tells this source apart, run after run: it goes into states."""
        told = repr(source)
        copy = pickle.loads(_dumps(source))
        with _promised("The `repr` of a source goes into checkpoints."):
            assert len(told) <= LONGEST_REPR, (
                f"It must be shorter than 200 characters, and is {len(told)}: {told[:40]}..."
            )
            assert " at 0x" not in told, f"It must not hold an address, and is {told}."
            _read_each(source, _some(source))
            assert repr(source) == told, f"It was {told}, and {source!r} after reading."
            assert repr(copy) == told, f"It is {told}, and {copy!r} after pickling."


@final
class _Index:
    """What is not an integer, and can be used as one."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


@contextmanager
def _promised(promise: str) -> Generator[None]:
    """Say what is expected of a source, before whatever turns out to be otherwise."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{promise} {error}") from None
    except Exception as error:
        error.add_note(promise)
        raise


def _some(source: Any) -> list[int]:
    """Give a few indices, the first and the last among them."""
    count = len(source)
    return np.unique(np.linspace(0, count - 1, min(count, MOST_READ)).astype(np.int64)).tolist()


def _spans(source: Any) -> list[Span]:
    """Give indices in all the orders that a block of records comes in."""
    count, some = len(source), np.array(_some(source), np.int64)
    few = min(count, MOST_READ)
    return [
        range(few),
        range(count - few, count),
        range(0, count, max(1, count // 7)),
        range(few - 1, -1, -1),
        range(0),
        np.concatenate([some[1::2], some[::-1], some[:1], some[:1]]),
        some[:0],
    ]


def _reader_of_many(source: Any) -> Callable[[Any], Sequence[Element]] | None:
    return source.__getitems__ if isinstance(source, SupportsGetItems) else None


def _dumps(value: Any) -> bytes:
    """Pickle as the engine does, which sends the classes of a script along."""
    return cloudpickle.dumps(value)  # pyright: ignore[reportUnknownMemberType]


def _read_each(source: Any, indices: Sequence[int]) -> list[Element]:
    return [source[index] for index in indices]


def _expect_index_error(told: str, read: Callable[[], Any]) -> None:
    try:
        read()
    except IndexError:
        return
    except Exception as error:
        raise AssertionError(f"{told} raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{told} raised nothing.")


def _expect_same(expected: Element, got: Element, path: str) -> None:
    told = difference(expected, got, path)
    assert told is None, f"{told}."


def _expect_all_same(
    expected: Sequence[Element], got: Sequence[Element], indices: Sequence[int]
) -> None:
    """Compare records one by one; the path in the message has the index of the record."""
    for index, one, other in zip(indices, expected, got, strict=True):
        _expect_same(one, other, f"source[{index}]")


def _expect_copies_that_read_the_same(source: Any, indices: list[int], told: str) -> None:
    count = len(source)
    kinds = {"pickle": pickle.dumps, "cloudpickle": _dumps}
    dumped: dict[str, bytes] = {}
    for name, dumps in kinds.items():  # all of them before the source is read
        with _promised(f"{told} must go through {name}."):
            dumped[name] = dumps(source)
    for name, data in dumped.items():
        with _promised(f"{told} must read the same after it went through {name}."):
            copy: Any = pickle.loads(data)
            assert len(copy) == count, f"Its length is {len(copy)}, not {count}."
            _expect_all_same(_read_each(source, indices), _read_each(copy, indices), indices)
