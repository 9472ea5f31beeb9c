"""The ledger of a run: what it contains, and how it survives kills, restores and full disks."""

import json
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, Filter, MapDataset, ShardOptions, SkipErrors, feed, load
from gristmill._api.ledgers.audit import audit
from gristmill._api.ledgers.replay import replay_ledger
from gristmill._checkpoint.ledger_file import Ledger, batch_digest, find_ledgers, read_ledger
from gristmill.checkpoint import gather_states
from gristmill.errors import (
    CorruptFileError,
    FormatError,
    GristmillWarning,
    MissingFileError,
    PlanError,
    StateError,
)
from gristmill.experimental import ElasticIterator, WindowShuffleIterDataset


class Odd(Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


def loader_of(*steps: Any, seed: int = 1, **options: Any) -> Any:
    operations = [*steps, Batch(4)]
    return load(
        np.arange(80),
        shuffle=True,
        seed=seed,
        transformations=operations,
        **{"num_epochs": 1, **options},
    )


def dataset() -> Any:
    ds = MapDataset.source(np.arange(80)).shuffle(seed=2).to_iter_dataset()
    return WindowShuffleIterDataset(ds, window_size=8, seed=1).batch(4)


def only_ledger(folder: Path) -> Ledger:
    (path,) = find_ledgers(folder)
    return read_ledger(path)


KINDS: dict[str, Callable[[], Any]] = {
    "loader": loader_of,
    "filter": lambda: loader_of(Odd()),
    "workers": lambda: loader_of(worker_count=1),
    "dataset": dataset,
    "feed": loader_of,
    "feed of a dataset": dataset,
}


def open_kind(kind: str) -> Any:
    made = KINDS[kind]()
    return feed(made) if kind.startswith("feed") else iter(made)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_element_has_a_line_with_its_checksum(kind: str, tmp_path: Path):
    with open_kind(kind) as iterator:
        iterator.keep_ledger(tmp_path)
        list(iterator)
    expected = [batch_digest(batch) for batch in KINDS[kind]()]

    ledger = only_ledger(tmp_path)

    assert [line.batch for line in ledger.steps] == expected
    assert [line.step for line in ledger.steps] == list(range(len(expected)))
    assert len(ledger.segments) == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_run_that_is_killed_and_restored_has_one_line_for_each_step(kind: str, tmp_path: Path):
    with open_kind(kind) as iterator:
        iterator.keep_ledger(tmp_path / "whole")
        total = len(list(iterator))
    with open_kind(kind) as iterator:
        iterator.keep_ledger(tmp_path / "killed")
        next(islice(iterator, 2, None))
        state = iterator.get_state()
        next(islice(iterator, 1, None))  # after the checkpoint: lost with the process
    with open_kind(kind) as iterator:
        iterator.set_state(state)
        iterator.keep_ledger(tmp_path / "killed")
        next(iterator)
        iterator.set_state(state)  # the trainer goes back by itself
        list(iterator)

    whole, killed = only_ledger(tmp_path / "whole"), only_ledger(tmp_path / "killed")

    assert list(killed.steps) == list(whole.steps)
    assert len(list(whole.steps)) == total
    assert killed.num_replaced == 3


def test_what_a_feed_has_prefetched_is_not_in_the_ledger(tmp_path: Path):
    with feed(loader_of(), prefetch=3) as batches:
        next(batches)
        batches.keep_ledger(tmp_path)
        next(batches)
        next(batches)
    seen = [batch_digest(batch) for batch in islice(loader_of(), 1, 3)]

    assert [(line.step, line.batch) for line in only_ledger(tmp_path).steps] == [
        (1, seen[0]),
        (2, seen[1]),
    ]


def test_changing_a_batch_in_place_does_not_change_its_line(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        expected = []
        for batch in iterator:
            expected.append(batch_digest(batch))
            batch += 1

    assert [line.batch for line in only_ledger(tmp_path).steps] == expected


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_replay_finds_that_all_elements_are_bit_identical(kind: str, tmp_path: Path):
    with open_kind(kind) as iterator:
        iterator.keep_ledger(tmp_path)
        total = len(list(iterator))

    replayed = list(replay_ledger(KINDS[kind](), only_ledger(tmp_path)))

    assert [step.problem for step in replayed] == [None] * total


def test_a_replay_finds_the_step_that_differs(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        list(iterator)
    numbers = np.arange(80)
    where = next(loader_of().steps_of(7))
    numbers[7] = 1000
    changed = load(numbers, shuffle=True, seed=1, num_epochs=1, transformations=[Batch(4)])

    problems = {
        step.line.step: step.problem for step in replay_ledger(changed, only_ledger(tmp_path))
    }

    assert {step for step, problem in problems.items() if problem} == {where}
    for one in replay_ledger(changed, only_ledger(tmp_path), where):
        assert one.problem == "the element is not that of the run"
        assert 7 in [origin.index for origin in one.provenance().records]


def test_a_step_that_is_not_in_the_ledger_is_an_error(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        next(islice(iterator, 2, None))
        iterator.set_state(loader_of().from_step(10).get_state())
        next(iterator)

    with pytest.raises(StateError, match=r"has no step 5\. Its steps are 0 to 2, 10 to 10"):
        list(replay_ledger(loader_of(), only_ledger(tmp_path), 5))


def test_a_ledger_of_another_pipeline_is_refused(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        list(iterator)

    with pytest.raises(StateError, match="belongs to another order"):
        list(replay_ledger(loader_of(seed=2), only_ledger(tmp_path)))


@pytest.mark.parametrize("num_bytes", [1, 7, 40])
def test_a_line_that_was_cut_off_is_left_out_and_removed(num_bytes: int, tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        next(islice(iterator, 4, None))
        state = iterator.get_state()
    (path,) = find_ledgers(tmp_path)
    path.write_bytes(path.read_bytes()[:-num_bytes])

    cut = read_ledger(path)
    assert cut.is_cut_off
    assert [line.step for line in cut.steps] == [0, 1, 2, 3]

    with iter(loader_of()) as iterator:
        iterator.set_state(state)
        iterator.keep_ledger(tmp_path)
        next(iterator)
    healed = read_ledger(path)
    assert not healed.is_cut_off
    assert [line.step for line in healed.steps] == [0, 1, 2, 3, 5]


def test_damage_within_a_ledger_is_an_error_that_names_the_line(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        list(iterator)
    (path,) = find_ledgers(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b'{"step":2,"sta\n'
    path.write_bytes(b"".join(lines))

    with pytest.raises(CorruptFileError, match=r"Line 4 of the ledger is damaged.*byte"):
        read_ledger(path)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"hello\n", FormatError, "not a ledger"),
        (b'{"ledger":1,"step":0', CorruptFileError, "first line of the ledger is cut off"),
        (b'{"ledger":1}\n', CorruptFileError, "Line 1"),
        (b'{"ledger":9,"state":{"cursor":[0]},"step":0,"shard":[0,1]}\n', FormatError, "version 9"),
    ],
)
def test_other_files_are_refused(
    content: bytes, error: type[Exception], message: str, tmp_path: Path
):
    path = tmp_path / "shard_0-of-1.jsonl"
    path.write_bytes(content)

    with pytest.raises(error, match=message):
        read_ledger(path)


def test_a_file_that_is_not_a_ledger_is_not_appended_to(tmp_path: Path):
    path = tmp_path / "shard_0-of-1.jsonl"
    path.write_bytes(b"hello\n")

    with iter(loader_of()) as iterator, pytest.raises(FormatError, match="not a ledger"):
        iterator.keep_ledger(tmp_path)
    assert path.read_bytes() == b"hello\n"


def test_a_missing_ledger_is_an_error(tmp_path: Path):
    with pytest.raises(MissingFileError, match="contains no ledger"):
        find_ledgers(tmp_path)
    with pytest.raises(MissingFileError, match="does not exist"):
        find_ledgers(tmp_path / "nowhere")


def test_an_unknown_step_must_be_named(tmp_path: Path):
    with iter(loader_of(Odd())) as iterator:
        next(iterator)
        with pytest.raises(PlanError, match="The number of the next step is not known"):
            iterator.keep_ledger(tmp_path)
        iterator.keep_ledger(tmp_path, step=1)
        next(iterator)

    assert [line.step for line in only_ledger(tmp_path).steps] == [1]


def test_after_an_exclusion_the_step_must_be_named(tmp_path: Path):
    with iter(loader_of()) as iterator:
        next(iterator)
        iterator.exclude(records=[70])
        with pytest.raises(PlanError, match="not known: records were excluded, and"):
            iterator.keep_ledger(tmp_path)


def test_where_records_are_skipped_the_step_must_be_named(tmp_path: Path):
    with iter(loader_of(on_error=SkipErrors(2))) as iterator:
        next(iterator)
        with pytest.raises(PlanError, match="not known: bad records may have been skipped, and"):
            iterator.keep_ledger(tmp_path)


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 4), (1, 3)])
def test_steps_go_on_after_a_change_of_the_number_of_shards(
    before: int, after: int, tmp_path: Path
):
    def sharded(shard: int, count: int) -> Any:
        return iter(loader_of(shard_options=ShardOptions(shard, count), num_epochs=2))

    def take(iterator: Any, count: int) -> Any:
        with iterator:
            iterator.keep_ledger(tmp_path)
            assert len(list(islice(iterator, count))) == count
            return iterator.get_state()

    states = [take(sharded(shard, before), 3) for shard in range(before)]
    for _ in range(2):  # the second time, the states describe two earlier runs
        iterators = [sharded(shard, after) for shard in range(after)]
        for iterator in iterators:
            iterator.set_state(gather_states(states))
        states = [take(iterator, 2) for iterator in iterators]
        before, after = after, before

    ledgers = [read_ledger(path) for path in find_ledgers(tmp_path)]
    steps = sorted([line.step for line in ledger.steps] for ledger in ledgers)
    assert steps == sorted(before * [[0, 1, 2, 5, 6]] + after * [[3, 4]])


def test_iterators_of_all_shards_at_once_have_no_ledger(tmp_path: Path):
    iterator = iter(ElasticIterator(MapDataset.range(10), 2, ShardOptions(0, 1)))

    with pytest.raises(PlanError, match="states of this one are of all shards"):
        iterator.keep_ledger(tmp_path)


def test_a_full_disk_ends_the_ledger_and_not_the_run(tmp_path: Path):
    with iter(loader_of()) as iterator, open("/dev/full", "wb") as full:
        iterator.keep_ledger(tmp_path)
        private: Any = iterator
        os.dup2(full.fileno(), private._ledger._writer._descriptor)
        with pytest.warns(GristmillWarning, match="The run continues without it"):
            assert len(list(iterator)) == 20


def test_exclusions_and_skips_are_replayed(tmp_path: Path):
    loader = loader_of()
    with iter(loader) as iterator:
        iterator.keep_ledger(tmp_path)
        next(islice(iterator, 3, None))
        iterator.exclude(records=range(30))
        list(iterator)

    ledger = only_ledger(tmp_path)
    assert [segment.first_step for segment in ledger.segments] == [0, 4]
    assert all(step.problem is None for step in replay_ledger(loader, ledger))


def test_a_line_has_about_seventy_bytes(tmp_path: Path):
    with iter(loader_of()) as iterator:
        iterator.keep_ledger(tmp_path)
        list(iterator)
    (path,) = find_ledgers(tmp_path)

    lines = path.read_text().splitlines()

    assert all(len(line) < 80 for line in lines[1:])
    assert json.loads(lines[1]).keys() == {"step", "state", "batch", "at"}


def test_steps_are_counted_where_a_map_leaves_elements_out(tmp_path: Path):
    dataset = MapDataset.range(40).map(lambda x: x if x % 4 else None).to_iter_dataset().batch(2)
    with iter(dataset) as iterator:
        iterator.keep_ledger(tmp_path)
        for _ in islice(iterator, 8):
            pass
        state = iterator.get_state()
        next(iterator)
    with iter(dataset) as iterator:
        iterator.set_state(state)
        iterator.keep_ledger(tmp_path)
        rest = list(iterator)

    ledger = read_ledger(*find_ledgers(tmp_path))
    assert len(rest) == 7
    assert [line.step for line in ledger.steps] == list(range(15))
    assert ledger.num_replaced == 1
    assert not any(step.problem for step in replay_ledger(dataset, ledger))


def test_a_shard_that_takes_no_step_after_a_resize_is_in_its_ledger(tmp_path: Path):
    def shard(index: int, count: int) -> Any:
        return iter(MapDataset.range(20)[index::count].to_iter_dataset().shuffle(3, seed=1))

    def take(iterators: list[Any], state: Any, count: int, step: int | None = None) -> Any:
        for iterator in iterators:
            if state is not None:
                iterator.set_state(state)
            iterator.keep_ledger(tmp_path, step=step)
            for _ in islice(iterator, count):
                pass
            iterator.close()
        return gather_states([iterator.get_state() for iterator in iterators])

    state = take([shard(index, 2) for index in range(2)], None, 3)
    state = take([shard(0, 1)], state, 3, step=3)
    take([shard(index, 2) for index in range(2)], state, 0, step=6)
    again = shard(1, 2)
    again.set_state(state)
    again.keep_ledger(tmp_path)  # where it is known which step it is at
    next(again)

    ledgers = [read_ledger(path) for path in find_ledgers(tmp_path)]
    assert [line.step for line in ledgers[2].steps] == [0, 1, 2, 6]
    found = audit(MapDataset.range(20)[0::2].to_iter_dataset().shuffle(3, seed=1), ledgers)
    assert found.problems == ()


def test_an_empty_ledger_is_replayed(tmp_path: Path):
    loader = load(range(4), num_epochs=1)
    with iter(loader) as iterator:
        iterator.keep_ledger(tmp_path)

    assert list(replay_ledger(loader, read_ledger(*find_ledgers(tmp_path)))) == []
