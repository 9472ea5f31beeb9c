"""An audit finds each record that was lost or came twice, and nothing else."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    Batch,
    DataLoader,
    DatasetIterator,
    Filter,
    FlatMap,
    IndexSampler,
    IterDataset,
    MapDataset,
    ReadOptions,
    ShardOptions,
    SkipErrors,
)
from gristmill._api.ledgers.audit import Audit, audit
from gristmill._checkpoint.ledger_file import find_ledgers, read_ledger
from gristmill.checkpoint import gather_states
from gristmill.errors import PlanError, ProvenanceError, StateError
from gristmill.experimental import ConcatThenSplitIterDataset, WindowShuffleIterDataset
from tests.properties.dataset_plans import ABOVE, BELOW, SIZES, dataset
from tests.properties.pipelines import AHEAD, INLINE, Jitter

LAW = settings(deadline=None, print_blob=True, max_examples=60)
SIZE = 30


class NotThird(Filter):
    def filter(self, element: int) -> bool:
        return bool(element % 3)


class Twice(FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element, element]


def picky(element: int) -> int:
    if element % 7 == 0:
        raise ValueError(element)
    return element


STEPS: dict[str, list[Any]] = {
    "plain": [],
    "random": [Jitter(1)],
    "filter": [NotThird()],
    "flat map": [Twice()],
    "skips": [picky],
}


def loader_of(
    steps: str,
    *,
    shard: tuple[int, int] = (0, 1),
    contiguous: bool = False,
    read: ReadOptions = INLINE,
    size: int = 4,
    drop: bool = False,
    epochs: int | None = 2,
) -> DataLoader:
    options = ShardOptions(*shard)
    return DataLoader(
        data_source=list(range(SIZE)),
        sampler=IndexSampler(
            SIZE,
            shuffle=True,
            num_epochs=epochs,
            seed=3,
            **({"shard_options": options} if contiguous and shard[1] > 1 else {}),
        ),
        operations=[*STEPS[steps], Batch(size, drop_remainder=drop)],
        shard_options=None if contiguous else options,
        read_options=read,
        on_error=SkipErrors(1000) if steps == "skips" else "raise",
    )


def run(
    loader: DataLoader,
    folder: str,
    count: int | None,
    *,
    state: bytes | None = None,
    step: int | None = None,
) -> bytes:
    """Take elements with a ledger, and return the state after them."""
    with iter(loader) as iterator:
        if state is not None:
            iterator.set_state(state)
        iterator.keep_ledger(folder, step=step)
        for _ in islice(iterator, count):
            pass
        return iterator.get_state()


def audit_of(loader: Any, folder: str) -> Audit:
    return audit(loader, [read_ledger(path) for path in find_ledgers(Path(folder))])


pipelines = st.fixed_dictionaries(
    {
        "contiguous": st.booleans(),
        "read": st.sampled_from([INLINE, AHEAD]),
        "size": st.integers(1, 5),
        "drop": st.booleans(),
        "epochs": st.sampled_from([1, 2, None]),
    }
)


@given(
    steps=st.sampled_from(sorted(STEPS)),
    options=pipelines,
    count=st.integers(1, 3),
    taken=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    back=st.integers(0, 4),
    new_count=st.sampled_from([0, 1, 2, 4]),
    excluded=st.sets(st.integers(0, SIZE - 1), max_size=5),
)
@settings(LAW, max_examples=40)
def test_a_run_with_kills_and_resizes_and_exclusions_has_no_problem(
    steps: str,
    options: dict[str, Any],
    count: int,
    taken: list[int],
    back: int,
    new_count: int,
    excluded: set[int],
):
    with tempfile.TemporaryDirectory() as folder:
        states = []
        for shard in range(count):
            loader = loader_of(steps, shard=(shard, count), **options)
            checkpoint = run(loader, folder, taken[shard])
            run(loader, folder, back, state=checkpoint)  # killed after the checkpoint
            with iter(loader) as iterator:
                iterator.set_state(checkpoint)
                iterator.keep_ledger(folder)
                iterator.exclude(records=excluded)
                for _ in islice(iterator, 2):
                    pass
                states.append(iterator.get_state())
        if new_count and steps != "flat map":
            state = gather_states(states)
            for shard in range(new_count):
                loader = loader_of(steps, shard=(shard, new_count), **options)
                run(loader, folder, 2, state=state, step=None if new_count == count else 100)

        found = audit_of(loader_of(steps, **{**options, "contiguous": False}), folder)

    assert found.problems == ()
    for part in found.coverage:
        assert not part.lost
        assert not part.repeated
        assert set(part.excluded) <= excluded
        missing = part.num_expected - part.num_came - part.num_to_come - part.num_dropped
        if steps != "flat map":
            assert missing == len(part.excluded)


@given(
    steps=st.sampled_from(["plain", "random", "filter", "skips"]),
    options=pipelines,
    taken=st.integers(1, 6),
    skipped=st.integers(1, 3),
    named=st.booleans(),
)
@LAW
def test_a_planted_loss_is_found(
    steps: str, options: dict[str, Any], taken: int, skipped: int, named: bool
):
    loader = loader_of(steps, **{**options, "contiguous": False})
    with iter(loader) as iterator:
        rows = _records(iterator, taken)
        lost = _records(iterator, skipped)
        later = iterator.get_state()
        if next(iterator, None) is None:
            return
    assert rows
    with tempfile.TemporaryDirectory() as folder:
        run(loader, folder, taken)
        with iter(loader) as iterator:
            iterator.set_state(later)  # a checkpoint that is newer than the model
            iterator.keep_ledger(folder, step=taken if named else taken + skipped)
            next(iterator)

        found = audit_of(loader, folder)

    assert sorted(record for part in found.coverage for record in part.lost) == sorted(lost)
    assert not any(part.repeated for part in found.coverage)
    assert found.problems[0].endswith("left out") or "no line" in found.problems[0]


@given(
    steps=st.sampled_from(["plain", "random", "filter", "skips"]),
    options=pipelines,
    taken=st.integers(1, 6),
    again=st.integers(1, 3),
)
@LAW
def test_a_planted_repeat_is_found(steps: str, options: dict[str, Any], taken: int, again: int):
    loader = loader_of(steps, **{**options, "contiguous": False})
    with iter(loader) as iterator:
        for _ in islice(iterator, taken):
            pass
        early = iterator.get_state()
        twice = _records(iterator, again)
    if not twice:
        return
    with tempfile.TemporaryDirectory() as folder:
        with iter(loader) as iterator:
            iterator.keep_ledger(folder)
            num_taken = sum(1 for _ in islice(iterator, taken + again))
        with iter(loader) as iterator:
            iterator.set_state(early)  # the data goes back, and the model does not
            iterator.keep_ledger(folder, step=num_taken)
            for _ in islice(iterator, again):
                pass

        found = audit_of(loader, folder)

    assert sorted(record for part in found.coverage for record in part.repeated) == sorted(twice)
    assert any("goes back" in problem for problem in found.problems)


def _records(iterator: Any, count: int) -> list[int]:
    """Return the records of the next elements."""
    return [
        origin.index for _ in islice(iterator, count) for origin in iterator.provenance().records
    ]


@given(number=st.integers(0, 5), times=st.sampled_from([0, 2]))
@LAW
def test_a_line_that_was_removed_or_doubled_is_found(number: int, times: int):
    loader = loader_of("plain")
    with iter(loader) as iterator:
        records = [_records(iterator, 1) for _ in range(7)][number]
    with tempfile.TemporaryDirectory() as folder:
        run(loader, folder, 7)
        (path,) = find_ledgers(Path(folder))
        lines = path.read_bytes().splitlines(keepends=True)
        lines[1 + number : 2 + number] = lines[1 + number : 2 + number] * times
        path.write_bytes(b"".join(lines))

        found = audit_of(loader, folder)

    (part,) = found.coverage
    assert sorted(part.lost if not times else part.repeated) == sorted(records)
    assert any(f"step {number}" in problem for problem in found.problems)


DATASETS: dict[str, Callable[[], Any]] = {
    "window": lambda: WindowShuffleIterDataset(_numbers(), window_size=8, seed=1).batch(3),
    "mix": lambda: MapDataset.mix(
        [MapDataset.source(list(range(20))), MapDataset.source(list(range(30, 50)))], [1, 2]
    ).batch(3),
    "filter": lambda: _numbers().filter(lambda x: x % 3 != 1).batch(2),
}


def _numbers() -> Any:
    return MapDataset.source(list(range(SIZE))).shuffle(seed=1).repeat(2).to_iter_dataset()


@pytest.mark.parametrize("kind", sorted(DATASETS))
def test_a_dataset_is_audited(kind: str, tmp_path: Path):
    dataset = DATASETS[kind]()
    with iter(dataset) as iterator:
        iterator.keep_ledger(tmp_path)
        for _ in islice(iterator, 4):
            pass
        state = iterator.get_state()
        lost = _records(iterator, 1)
        later = iterator.get_state()
        iterator.set_state(state)
        iterator.keep_ledger(tmp_path)
        next(iterator)
    fine = audit_of(dataset, str(tmp_path))
    assert fine.problems == ()

    with iter(dataset) as iterator:
        iterator.set_state(later)
        iterator.keep_ledger(tmp_path, step=4)
        next(iterator)
    found = audit_of(dataset, str(tmp_path))

    assert sorted(record for part in found.coverage for record in part.lost) == sorted(lost)


@given(
    below=st.sampled_from(sorted(BELOW)),
    between=st.lists(st.sampled_from(["filter", "window", "map"]), max_size=2),
    above=st.sampled_from(sorted(ABOVE)),
    taken=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    excluded=st.sets(st.tuples(st.integers(0, 1), st.integers(0, min(SIZES) - 1)), max_size=5),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    has_ledger=st.lists(st.booleans(), min_size=3, max_size=3),
)
@settings(LAW, max_examples=60)
def test_datasets_are_audited_after_kills_and_resizes_and_exclusions(
    below: str,
    between: list[str],
    above: str,
    taken: list[int],
    excluded: set[tuple[int, int]],
    counts: list[int],
    has_ledger: list[bool],
):
    made = partial(dataset, below, between, above)
    changes = [count for count, before in pairwise([*counts, 0]) if count != before]
    with tempfile.TemporaryDirectory() as folder:
        state: Any = None
        for phase, count in enumerate(changes):
            ledger = folder if has_ledger[phase] else None
            states = [
                _killed_once(
                    made((shard, count)), state, ledger, taken[shard], () if phase else excluded
                )
                for shard in range(count)
            ]
            try:
                state = gather_states(states)
            except StateError:  # only some of the shards could exclude the records
                return
        ledgers = [read_ledger(path) for path in Path(folder).glob("*.jsonl")]
        found = audit(made(), ledgers, [state])

    assert found.problems == ()
    for part in found.coverage:
        assert {(part.source, record) for record in part.excluded} <= excluded
        assert excluded or not part.displaced


def _killed_once(
    dataset: Any, state: Any, folder: str | None, taken: int, excluded: Iterable[tuple[int, int]]
) -> Any:
    """Take elements, die after a checkpoint, resume from it, and return the state at the end."""
    with iter(dataset) as iterator:
        if state is not None:
            iterator.set_state(state)
        if folder is not None:
            iterator.keep_ledger(folder, step=None if state is None else 1000)
        for _ in islice(iterator, taken):
            pass
        with contextlib.suppress(PlanError):  # a step holds a record already
            iterator.exclude(records=excluded)
        checkpoint = iterator.get_state()
        for _ in islice(iterator, 2):
            pass
    with iter(dataset) as iterator:
        iterator.set_state(checkpoint)
        if folder is not None:
            iterator.keep_ledger(folder)
        next(iterator, None)
        return iterator.get_state()


FEWER: dict[str, Callable[[], Any]] = {
    "limit": lambda: _numbers().take(25),
    "mix": lambda: IterDataset.mix(
        [MapDataset.range(9).to_iter_dataset(), MapDataset.range(30).to_iter_dataset()]
    ),
    "batches": lambda: (
        MapDataset.range(30).to_iter_dataset().batch(2).filter(lambda batch: batch.sum() % 3 > 0)
    ),
}


@pytest.mark.parametrize("kind", sorted(FEWER))
@pytest.mark.parametrize("to_end", [False, True])
def test_records_that_come_in_place_of_excluded_ones_are_no_problem(
    kind: str, to_end: bool, tmp_path: Path
):
    dataset = FEWER[kind]()
    with dataset.from_step(6) as iterator:
        next(iterator)
        suspects = iterator.provenance().records
    with iter(dataset) as iterator:
        iterator.keep_ledger(tmp_path)
        for _ in islice(iterator, 3):
            pass
        iterator.exclude(records=suspects)
        for _ in islice(iterator, None if to_end else 2):
            pass

    found = audit_of(dataset, str(tmp_path))

    assert found.problems == ()
    assert sum(len(part.excluded) for part in found.coverage) == len(suspects)


def test_a_loss_and_a_repeat_are_found_beside_excluded_records(tmp_path: Path):
    dataset = ConcatThenSplitIterDataset(
        MapDataset.source([{"x": np.full(4, number)} for number in range(20)]).to_iter_dataset(),
        length_struct={"x": 4},
    )
    with iter(dataset) as iterator:
        iterator.keep_ledger(tmp_path)
        next(iterator)
        iterator.exclude(records=[3])
        early = iterator.get_state()
        next(iterator)
        (lost,) = _records(iterator, 1)
        later = iterator.get_state()
    for state, step in ((later, 2), (early, 3)):
        with iter(dataset) as iterator:
            iterator.set_state(state)
            iterator.keep_ledger(tmp_path, step=step)
            next(iterator)

    found = audit_of(dataset, str(tmp_path))

    (part,) = found.coverage
    assert (part.lost, part.repeated, part.excluded) == ((), (1,), (3,))
    assert lost == 2
    assert len(found.problems) == 3


def test_a_loss_is_found_where_excluded_records_change_what_comes(tmp_path: Path):
    limited = MapDataset.range(30).to_iter_dataset().take(20)
    with iter(limited) as iterator:
        iterator.keep_ledger(tmp_path)
        iterator.exclude(records=[3])
        next(iterator)
    with iter(limited) as iterator:
        iterator.exclude(records=[3])
        for _ in islice(iterator, 2):
            pass
        iterator.keep_ledger(tmp_path, step=1)
        next(iterator)

    found = audit_of(limited, str(tmp_path))

    assert [part.lost for part in found.coverage] == [(1,)]


def test_states_with_exclusions_are_audited():
    loader = loader_of("plain")
    with iter(loader) as iterator:
        came = next(iterator).tolist()
        iterator.exclude(records=[came[0], (came[0] + 1) % SIZE])
        state = json.loads(iterator.get_state())

    found = audit(loader, [], [state])

    assert found.problems == ()
    assert came[0] not in found.coverage[0].excluded
    assert (came[0] + 1) % SIZE in {*found.coverage[0].excluded, *came}
    assert found.coverage[0].num_came == 4


def test_a_dataset_with_an_iterator_of_the_users_own_is_not_audited():
    class Own(IterDataset[int]):
        def __iter__(self) -> Any:
            return OwnIterator()

    class OwnIterator(DatasetIterator[int]):
        def __next__(self) -> int:
            return 1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            pass

    with iter(loader_of("plain")) as iterator:
        state = json.loads(iterator.get_state())

    with pytest.raises(ProvenanceError, match="OwnIterator does not keep track of steps"):
        audit(Own(), [], [state])


def test_what_a_window_holds_is_listed(tmp_path: Path):
    dataset = DATASETS["window"]()
    with iter(dataset) as iterator:
        iterator.keep_ledger(tmp_path)
        next(iterator)

    (part,) = audit_of(dataset, str(tmp_path)).coverage

    assert (part.num_came, part.num_held, part.num_to_come) == (3, 5, SIZE - 3)


@pytest.mark.parametrize("count", [1, 3])
def test_states_alone_report_what_came(count: int):
    states = []
    for shard in range(count):
        with iter(loader_of("plain", shard=(shard, count))) as iterator:
            for _ in islice(iterator, 2):
                pass
            states.append(json.loads(iterator.get_state()))

    found = audit(loader_of("plain"), [], states)

    assert found.problems == ()
    assert sum(part.num_came for part in found.coverage) == 8 * count


def test_a_shard_without_a_ledger_is_a_problem(tmp_path: Path):
    run(loader_of("plain", shard=(0, 2)), str(tmp_path), 2)

    found = audit_of(loader_of("plain"), str(tmp_path))

    assert found.problems == ("there is no ledger or state of shard 1 of 2",)


def test_ledgers_of_different_pipelines_are_refused(tmp_path: Path):
    run(loader_of("plain", shard=(0, 2)), str(tmp_path), 2)
    run(loader_of("random", shard=(1, 2)), str(tmp_path), 2)

    with pytest.raises(StateError, match="are of different pipelines"):
        audit_of(loader_of("plain"), str(tmp_path))


def test_another_pipeline_is_refused(tmp_path: Path):
    run(loader_of("plain"), str(tmp_path), 2)

    with pytest.raises(StateError, match="belongs to other steps"):
        audit_of(loader_of("random"), str(tmp_path))


def test_a_filter_that_has_changed_is_refused(tmp_path: Path):
    def loader(remainder: int) -> DataLoader:
        def keep(element: int) -> bool:
            return element % 3 != remainder

        class Keep(Filter):
            def filter(self, element: int) -> bool:
                return keep(element)

        return DataLoader(
            data_source=list(range(SIZE)),
            sampler=IndexSampler(SIZE, shuffle=True, num_epochs=1, seed=3),
            operations=[Keep(), Batch(4)],
        )

    run(loader(0), str(tmp_path), 3)

    with pytest.raises(StateError, match="is at another position than the pipeline"):
        audit_of(loader(1), str(tmp_path))


def test_skipped_records_are_listed(tmp_path: Path):
    run(loader_of("skips"), str(tmp_path), None)

    found = audit_of(loader_of("skips"), str(tmp_path))

    assert found.problems == ()
    assert any("5 records (0, 7, 14, 21, 28) skipped" in note for note in found.notes)
