"""Skipping bad records: the plan over the good ones, and a ledger of the others, in any run."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import (
    ArraySource,
    Batch,
    DataLoader,
    DataLoaderIterator,
    Filter,
    FlatMap,
    IndexSampler,
    Map,
    MapWithIndex,
    RandomMap,
    ReadOptions,
    RecordMetadata,
    SkipErrors,
)
from gristmill._plan.traverse import sample_of, steps_of
from gristmill.checkpoint import SkippedRecord
from tests.equivalence.executors import (
    INLINE,
    Run,
    ahead,
    by_value,
    cheap,
    exact,
    hopping_to_processes,
    processes,
    take,
)
from tests.properties.pipelines import Pipeline, shards
from tests.properties.trees import stacked

by_value(__name__)

CHEAP = settings(deadline=None, print_blob=True, max_examples=40)
DEAR = settings(deadline=None, print_blob=True, max_examples=6)
PLENTY = 10_000


# Steps that fail for some records, or for some pieces of one.


class BadRecordError(Exception):
    """What a bad record raises."""


@dataclass(frozen=True)
class Fussy:
    """Does not work on some elements: every `modulus`th or so, none if it is 0."""

    modulus: int
    salt: int

    def dislikes(self, record: int, path: int) -> bool:
        return self.modulus > 0 and (7 * record + 31 * path + self.salt) % self.modulus == 0

    def check(self, record: int, path: int = 0) -> None:
        if self.dislikes(record, path):
            raise BadRecordError(self.complaint(record, path))

    def complaint(self, record: int, path: int) -> str:
        return f"{type(self).__name__} cannot do {record}/{path}"

    def pieces(self, record: int, path: int) -> list[int]:
        """Return the paths of what becomes of an element: of itself, where there is one for one."""
        return [path]


class FussyMap(Fussy, Map):
    def map(self, element: Any) -> Any:
        self.check(element["record"], element["path"])
        return {**element, "maps": element["maps"] + 1}


class FussyDraw(Fussy, RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        drawn = int(rng.integers(2**30))
        self.check(element["record"], element["path"])
        return {**element, "drawn": element["drawn"] ^ drawn}


class FussyFilter(Fussy, Filter):
    def filter(self, element: Any) -> bool:
        self.check(element["record"], element["path"])
        return bool(self.pieces(element["record"], element["path"]))

    def pieces(self, record: int, path: int) -> list[int]:
        return [path] if (record + path) % 3 else []


class FussySplit(Fussy, FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        self.check(element["record"], element["path"])
        paths = self.pieces(element["record"], element["path"])
        return [{**element, "path": path} for path in paths]

    def pieces(self, record: int, path: int) -> list[int]:
        return [4 * path + number + 1 for number in range((record + path) % 4)]


class Number(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return {**element, "index": index}


@dataclass(frozen=True)
class FussySource(Fussy):
    num_records: int

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: int) -> Any:
        self.check(index)
        return {"record": index, "path": 0, "maps": 0, "drawn": 0}

    def __repr__(self) -> str:
        return f"FussySource(<{self.num_records} records>)"


class FussySourceAtOnce(FussySource):
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


class FussyAboveBatches(Fussy, Map):
    """Fails for batches with some record in them: nobody can leave out half a batch."""

    def map(self, element: Any) -> Any:
        for record, path in zip(element["record"].flat, element["path"].flat, strict=True):
            self.check(int(record), int(path))
        return element


# A pipeline of them, and what it means.


@dataclass(frozen=True)
class Case:
    """A pipeline in which some records are bad."""

    source: FussySource
    sampler: IndexSampler
    steps: list[Any]
    batches: list[Batch]
    above: FussyAboveBatches | None = None
    shard: Any = None

    def pipeline(self) -> Pipeline:
        above = [] if self.above is None or not self.batches else [self.above]
        operations = [Number(), *self.steps, *self.batches, *above]
        return Pipeline("", len(self.source), self.sampler, self.shard, operations)

    def loader(self, way: Run, budget: int | None) -> DataLoader:
        on_error: Any = "raise" if budget is None else SkipErrors(budget)
        return way.loader(self.pipeline(), self.source, on_error=on_error)

    def fixed(self) -> "Case":
        """Return the pipeline without a fault, and without batches."""
        source = replace(self.source, modulus=0)
        steps = [replace(step, modulus=0) for step in self.steps]
        return replace(self, source=source, steps=steps, batches=[], above=None)


fussiness = st.tuples(st.one_of(st.just(0), st.integers(2, 12)), st.integers(0, 11))


@st.composite
def cases(draw: st.DrawFn, *, num_records: int = 20) -> Case:
    source = draw(st.sampled_from([FussySource, FussySourceAtOnce]))
    size = draw(st.integers(1, num_records))
    sampler = IndexSampler(
        size,
        shuffle=draw(st.booleans()),
        num_epochs=draw(st.integers(1, 2)),
        seed=draw(st.integers(0, 99)),
    )
    kinds = st.sampled_from([FussyMap, FussyDraw, FussyFilter, FussySplit])
    steps = [draw(kinds)(*draw(fussiness)) for _ in range(draw(st.integers(0, 4)))]
    sizes = draw(st.lists(st.integers(1, 5), max_size=2))
    drops = draw(st.booleans())  # only of the last: a smaller batch does not fit among others
    batches = [Batch(size, drops or number < len(sizes)) for number, size in enumerate(sizes, 1)]
    return Case(
        source(*draw(fussiness), size),
        sampler,
        steps,
        batches,
        draw(st.one_of(st.none(), st.builds(lambda fuss: FussyAboveBatches(*fuss), fussiness))),
        draw(st.one_of(st.none(), shards())),
    )


@dataclass(frozen=True)
class Skip:
    """A bad record in its place."""

    record: SkippedRecord
    message: str


@dataclass
class Meaning:
    """What a case yields when bad records are skipped within a budget."""

    elements: list[Any] = field(default_factory=list)
    skipped: list[list[SkippedRecord]] = field(default_factory=lambda: [[]])
    """What the state holds: at the start, and after each element."""
    ends: list[int] = field(default_factory=list)
    """Where in the walk the last row of each element stands."""
    ledger: list[SkippedRecord] = field(default_factory=list)
    """At the end."""
    error: str | None = None
    """The message of what ends it."""


def walk(case: Case) -> list[Any]:
    """Return the rows and the skips, one after the other, in the order of the stream."""
    fixed = case.fixed()
    good = {(row["index"], row["path"]): row for row in fixed.loader(INLINE, None)}
    loader = case.loader(INLINE, None)
    sample = sample_of(loader._plan_node)
    labels = [step.label for step in steps_of(loader._plan_node)][1:]
    reported: list[Any] = []

    def visit(position: int, record: int, path: int, number: int) -> None:
        if number == len(case.steps):
            reported.append(good[int(sample.indices(range(position, position + 1))[0]), path])
            return
        step = case.steps[number]
        if step.dislikes(record, path):
            reported.append(skip(position, record, labels[number], step.complaint(record, path)))
            return
        for piece in step.pieces(record, path):
            visit(position, record, piece, number + 1)

    def skip(position: int, record: int, step: str, complaint: str) -> Skip:
        error = f"BadRecordError: {complaint}"
        return Skip(SkippedRecord(position, record, step, error), complaint)

    for position in range(sample.length()):
        record = sample.metadata(position).record_key
        assert record is not None
        if case.source.dislikes(record, 0):
            label = f"reading {sample.parent.label}"
            reported.append(skip(position, record, label, case.source.complaint(record, 0)))
        else:
            visit(position, record, 0, 0)
    return reported


def meaning(case: Case, *, budget: int | None, after: int = 0, met: int = 0) -> Meaning:
    """Return what should come, after some of the walk, with as many skips before; `None`: raise."""
    expected = Meaning()
    rows: list[Any] = []
    places: list[int] = []
    reported = walk(case)
    if budget is None:
        reported = reported[: after + _num_read(case, len(reported) - after)]
    skips = [(place, one) for place, one in enumerate(reported) if isinstance(one, Skip)]
    expected.ledger = [one.record for place, one in skips]
    for place, one in enumerate(reported[after:], start=after):
        if isinstance(one, Skip):
            if met >= (budget or 0):
                expected.error = one.message
                break
            met += 1
        else:
            rows.append(one)
            places.append(place)
    is_whole = expected.error is None
    for batch in case.batches:
        groups = range(0, len(rows), batch.batch_size)
        if batch.drop_remainder or not is_whole:
            groups = groups[: len(rows) // batch.batch_size]
        ends = [min(start + batch.batch_size, len(rows)) for start in groups]
        places = [places[end - 1] for end in ends]
        rows = [stacked(rows[start:end]) for start, end in zip(groups, ends, strict=True)]
    for row, place in zip(rows, places, strict=True):
        complaint = _complaint_above(case, row)
        if complaint is not None:
            expected.error = complaint
            break
        expected.elements.append(exact(row))
        expected.ends.append(place)
        expected.skipped.append([one.record for other, one in skips if other < place])
    return expected


def _num_read(case: Case, num_records: int) -> int:
    """Count the records that are read where none is skipped: a remainder to be dropped is not."""
    if any(isinstance(step, Filter | FlatMap) for step in case.steps):
        return num_records
    size = 1
    for batch in case.batches:
        size *= batch.batch_size
        num_records -= num_records % size if batch.drop_remainder else 0
    return num_records


def _complaint_above(case: Case, row: Any) -> str | None:
    if case.above is not None and case.batches:
        for record, path in zip(row["record"].flat, row["path"].flat, strict=True):
            if case.above.dislikes(int(record), int(path)):
                return case.above.complaint(int(record), int(path))
    return None


# What a run yields.


def ledger_of(state: bytes) -> list[SkippedRecord]:
    reported = json.loads(state)["skipped"]
    return [
        SkippedRecord(**{name: value for name, value in entry.items() if name != "cursor"})
        for entry in reported
    ]


def assert_means(iterator: DataLoaderIterator, expected: Meaning, place: int = 0) -> list[bytes]:
    """Run an iterator from the place where it stands, and compare; return the states it was in."""
    elements: list[Any] = []
    states = [iterator.get_state()]

    ending = take(iterator, [], elements, states)

    assert elements == expected.elements[place:]
    assert [ledger_of(state) for state in states] == expected.skipped[place:]
    assert ending.message == (expected.error or "")
    if expected.error is None:
        assert iterator.skipped == expected.ledger
    else:
        assert iterator.skipped == expected.skipped[-1]
    assert take(iterator, again := [], [], []).message == ending.message
    assert again == []
    assert iterator.get_state() == states[-1]
    return states


@contextmanager
def running(case: Case, way: Run, budget: int | None) -> Iterator[DataLoaderIterator]:
    with pytest.MonkeyPatch.context() as patch:
        logger = logging.getLogger("gristmill")
        patch.setattr(logger, "disabled", True)  # it would log thousands of lines
        with way.forced(), closing(iter(case.loader(way, budget))) as iterator:
            yield iterator


def note_the_ending(expected: Meaning) -> None:
    event("fails" if expected.error else "skips some" if expected.ledger else "skips none")


BUDGETS = st.one_of(st.just(PLENTY), st.integers(0, 8))


@given(case=cases(), way=cheap, budget=BUDGETS)
@CHEAP
def test_bad_records_are_left_out_and_listed_within_a_budget(case: Case, way: Run, budget: int):
    expected = meaning(case, budget=budget)
    note_the_ending(expected)

    with running(case, way, budget) as iterator:
        assert_means(iterator, expected)


@given(
    case=cases(),
    first=cheap,
    second=cheap,
    budget=BUDGETS,
    cut=st.integers(0, 30),
)
@CHEAP
def test_a_state_restores_anywhere_with_its_ledger_and_its_share_of_the_budget(
    case: Case, first: Run, second: Run, budget: int, cut: int
):
    expected = meaning(case, budget=budget)
    place = cut % len(expected.skipped)
    with running(case, first, budget) as iterator:
        for _ in range(place):
            next(iterator)
        state = iterator.get_state()

    with running(case, second, budget) as iterator:
        iterator.set_state(state)
        assert iterator.skipped == expected.skipped[place]
        assert_means(iterator, expected, place)


@given(
    case=cases(num_records=60),
    way=processes,
    budget=BUDGETS,
    cuts=st.lists(st.integers(0, 60), min_size=1, max_size=3),
)
@DEAR
def test_processes_skip_the_same_ones(case: Case, way: Run, budget: int, cuts: list[int]):
    expected = meaning(case, budget=budget)
    note_the_ending(expected)

    with running(case, way, budget) as iterator:
        states = assert_means(iterator, expected)
        for cut in cuts:
            place = cut % len(states)
            iterator.set_state(states[place])
            assert_means(iterator, expected, place)


@given(case=cases(num_records=60), way=hopping_to_processes, budget=BUDGETS)
@DEAR
def test_going_to_processes_and_back_skips_the_same_ones(case: Case, way: Run, budget: int):
    with running(case, way, budget) as iterator:
        assert_means(iterator, meaning(case, budget=budget))


@given(case=cases(), way=ahead, budget=BUDGETS, cut=st.integers(0, 30))
@CHEAP
def test_a_thread_that_takes_over_in_the_middle_skips_none_twice(
    case: Case, way: Run, budget: int, cut: int
):
    expected = meaning(case, budget=budget)
    with running(case, replace(way, is_idle=True), budget) as iterator:
        for _ in range(place := cut % len(expected.skipped)):
            next(iterator)
        iterator.start_prefetch()
        assert_means(iterator, expected, place)


@given(case=cases(), first=cheap, second=cheap, budget=st.integers(0, 8))
@CHEAP
def test_a_state_of_a_run_that_raises_restores_in_one_that_skips(
    case: Case, first: Run, second: Run, budget: int
):
    raising, skipping = meaning(case, budget=None), meaning(case, budget=budget)
    with running(case, first, None) as iterator:
        states = assert_means(iterator, replace(raising, ledger=[]))

    place = len(states) - 1
    assert skipping.elements[:place] == raising.elements
    with running(case, second, budget) as iterator:
        iterator.set_state(states[place])
        assert_means(iterator, skipping, place)


@given(case=cases(), first=cheap, second=cheap, cut=st.integers(0, 30))
@CHEAP
def test_a_state_of_a_run_that_skips_restores_in_one_that_raises(
    case: Case, first: Run, second: Run, cut: int
):
    skipping = meaning(case, budget=PLENTY)
    place = cut % len(skipping.skipped)
    with running(case, first, PLENTY) as iterator:
        for _ in range(place):
            next(iterator)
        state = iterator.get_state()
    # The next bad record is not skipped any more.
    rest = meaning(case, budget=None, after=skipping.ends[place - 1] + 1 if place else 0)
    halfway = [
        skip for skip in skipping.skipped[place] if skip.position == json.loads(state)["cursor"][0]
    ]
    if halfway:  # nor is one that the state stands in: its pieces are all made again
        rest = Meaning(error=halfway[0].error.removeprefix("BadRecordError: "))

    with running(case, second, None) as iterator:
        iterator.set_state(state)
        assert iterator.skipped == skipping.skipped[place]
        elements: list[Any] = []
        ending = take(iterator, [], elements, [])
        assert elements == rest.elements
        assert ending.message == (rest.error or "")


# One by one, what properties hardly meet.


class Tripped:
    """A source whose records raise what they are given to raise."""

    def __init__(self, size: int, errors: dict[int, BaseException]) -> None:
        self.size = size
        self.errors = errors

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index in self.errors:
            raise self.errors[index]
        return index


def skipping(source: Any, *operations: Any, budget: int = 100, **arguments: Any) -> DataLoader:
    arguments.setdefault("sampler", IndexSampler(len(source), num_epochs=1, seed=0))
    return DataLoader(
        data_source=source,
        operations=operations,
        on_error=SkipErrors(budget),
        **arguments,
    )


@pytest.fixture(params=["inline", "ahead", "threads", "processes"])
def arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of a loader that runs in each way."""
    num_threads = {"inline": 0, "ahead": 1, "threads": 4, "processes": 0}[request.param]
    return {
        "read_options": ReadOptions(num_threads=num_threads),
        "worker_count": 2 if request.param == "processes" else 0,
    }


def test_each_skip_is_logged_once(arguments: dict[str, Any], caplog: pytest.LogCaptureFixture):
    bad = [3, 4, 11, 19]
    source = Tripped(20, {index: ValueError(f"no {index}") for index in bad})

    with (
        caplog.at_level(logging.WARNING),
        closing(iter(skipping(source, Batch(4), **arguments))) as iterator,
    ):
        assert [batch.tolist() for batch in iterator] == [
            [0, 1, 2, 5],
            [6, 7, 8, 9],
            [10, 12, 13, 14],
            [15, 16, 17, 18],
        ]

    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("gristmill", "WARNING")
    ] * 4
    assert [record.getMessage() for record in caplog.records] == [
        f"Skipped record {index}, because reading Tripped(<20 records>) raised "
        f"ValueError: no {index}."
        for index in bad
    ]
    assert iterator.stats().num_skipped == 4


def test_the_record_beyond_the_budget_raises_what_it_raised(arguments: dict[str, Any]):
    source = Tripped(20, {index: KeyError(f"no {index}") for index in (3, 4, 11)})
    with closing(iter(skipping(source, budget=2, **arguments))) as iterator:
        seen = [next(iterator) for _ in range(9)]
        assert seen == [0, 1, 2, 5, 6, 7, 8, 9, 10]
        for _ in range(2):
            with pytest.raises(KeyError, match="no 11") as caught:
                next(iterator)
            assert caught.value.__notes__[0] == (
                f"In reading Tripped(<20 records>), added at {__file__}:{_line_of_the_loader()}, "
                "on record 11 of the source (position 11 of the stream)."
            )
            reported = (
                "2 bad records were skipped before it, which is the `budget` of `SkipErrors`."
            )
            assert caught.value.__notes__.count(reported) == 1
            assert [skip.record for skip in iterator.skipped] == [3, 4]


def _line_of_the_loader() -> int:
    return skipping.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    "error", [gristmill.errors.PlanError("wrong"), MemoryError("full"), SystemExit(3)], ids=repr
)
def test_what_is_not_the_records_fault_is_not_skipped(
    arguments: dict[str, Any], error: BaseException
):
    with closing(iter(skipping(Tripped(9, {4: error}), **arguments))) as iterator:
        seen = [next(iterator) for _ in range(4)]
        exits = isinstance(error, SystemExit)
        with pytest.raises(gristmill.errors.WorkerError if exits else type(error)):
            next(iterator)
    assert seen == [0, 1, 2, 3]
    assert iterator.skipped == []


def test_a_stream_of_nothing_but_bad_records_is_empty(arguments: dict[str, Any]):
    source = Tripped(7, {index: ValueError() for index in range(7)})
    with closing(iter(skipping(source, Batch(3), **arguments))) as iterator:
        assert list(iterator) == []
        assert [skip.record for skip in iterator.skipped] == list(range(7))


class Doubled(Map):
    """Works on columns, but not on those with a 5 in them."""

    def map(self, element: Any) -> Any:
        if element == 5:
            raise ValueError("five")
        return 2 * element

    def map_batch(self, columns: Any) -> Any:
        if 5 in columns:
            raise ValueError("five")
        return 2 * columns


def test_columns_lose_the_bad_record_alone(arguments: dict[str, Any]):
    loader = skipping(ArraySource(np.arange(10)), Doubled(), Batch(3), **arguments)
    with closing(iter(loader)) as iterator:
        assert [batch.tolist() for batch in iterator] == [[0, 2, 4], [6, 8, 12], [14, 16, 18]]
        assert [skip.error for skip in iterator.skipped] == ["ValueError: five"]


class OwnSampler:
    """Fails at one index, and yields no record to name at another."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> RecordMetadata:
        if index == 2:
            raise LookupError("no such index")
        return RecordMetadata(index, None if index == 4 else 5 - index)


def test_a_users_sampler_that_fails_makes_a_bad_record_without_a_name(arguments: dict[str, Any]):
    loader = skipping(range(6), sampler=OwnSampler(), **arguments)
    with closing(iter(loader)) as iterator:
        assert list(iterator) == [5, 4, 2, 0]
        assert [(skip.position, skip.record) for skip in iterator.skipped] == [(2, None), (4, None)]


def test_an_error_before_a_bad_record_comes_first(arguments: dict[str, Any]):
    def above(batch: Any) -> Any:
        if 2 in batch:
            raise RuntimeError("two")
        return batch

    source = Tripped(8, {5: ValueError("five")})
    for budget in (0, 1):
        loader = skipping(source, Batch(2), above, budget=budget, **arguments)
        with closing(iter(loader)) as iterator:
            assert next(iterator).tolist() == [0, 1]
            with pytest.raises(RuntimeError, match="two"):
                next(iterator)
            assert iterator.skipped == []


class UntoldError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


def test_an_error_that_cannot_be_reported_is_reported_by_its_name(arguments: dict[str, Any]):
    with closing(iter(skipping(Tripped(3, {1: UntoldError()}), **arguments))) as iterator:
        assert list(iterator) == [0, 2]
        assert [skip.error for skip in iterator.skipped] == ["UntoldError"]
