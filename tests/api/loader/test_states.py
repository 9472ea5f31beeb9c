"""A state that does not fit is refused with a reason, and the iterator stays as it was."""

import json
import threading
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import StateError


def build(
    source: Any = tuple(range(20)),
    *,
    operations: Any = None,
    shard: Any = None,
    **options: Any,
) -> gm.DataLoader:
    sampler = gm.IndexSampler(20, **{"shuffle": True, "seed": 1, "num_epochs": 2, **options})
    return gm.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[gm.Batch(2)] if operations is None else operations,
        shard_options=shard,
    )


def dataset(
    num_records: int = 20, *, seed: int = 1, start: int = 0, **options: Any
) -> gm.IterDataset[Any]:
    """The like of `build`, with datasets."""
    records = gm.MapDataset.range(start, start + num_records)
    if options.get("shuffle", True):
        records = records.shuffle(seed=seed)
    records = records.repeat(options.get("num_epochs", 2))
    shard = options.get("shard", (0, 1))
    return (
        records[shard[0] :: shard[1]]
        .map(options.get("function", abs))
        .to_iter_dataset()
        .batch(options.get("batch_size", 2))
    )


class Split(gm.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


def state_of(loader: Any, taken: int = 3) -> Any:
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    return iterator.get_state()


def changed(state: Any, **changes: Any) -> Any:
    """Return a state with other content, and the checksum it had."""
    body = {**(state if isinstance(state, dict) else json.loads(state)), **changes}
    return body if isinstance(state, dict) else json.dumps(body).encode()


def resigned(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a state with other content and a checksum that fits it."""
    body = {**state, **changes}
    del body["checksum"]
    return {**body, "checksum": zlib.crc32(json.dumps(body, sort_keys=True).encode())}


STATE = state_of(build())
DATASET_STATE = state_of(dataset())


def damages(state: Any) -> dict[str, tuple[Any, str]]:
    """Return what may become of any state, and what its restoring reports."""
    text = state if isinstance(state, bytes) else json.dumps(state).encode()
    return {
        "truncated": (text[:-20], r"^The state is truncated: it ends after"),
        "empty": (b"", r"^The state is truncated"),
        "corrupt": (changed(state, cursor=[8]), r"^The state is corrupt: its checksum"),
        "noise": (b"\x93NUMPY\x01", r"^The state is corrupt: it is not JSON\."),
        "not ours": ({"step": 3}, r"^The state was not written by gristmill\."),
        "nothing": (None, r"^A state must be bytes or a dict, got NoneType\."),
        "of the future": (
            changed(state, gristmill=99),
            r"^The state has version 99, but this gristmill reads 1\.",
        ),
    }


REFUSED: dict[str, tuple[Any, str]] = {
    **damages(STATE),
    "of a dataset": (DATASET_STATE, r"^The state belongs to another source: Range"),
    "another source": (
        state_of(build(range(20))),
        r"^The state belongs to another source: range\(",
    ),
    "a longer source": (
        state_of(build(tuple(range(21)))),
        r"another source: tuple\(<21 records>\) there, tuple\(<20 records>\) here\.",
    ),
    "another seed": (state_of(build(seed=2)), r"^The state belongs to another order: .*seed=2"),
    "another number of epochs": (state_of(build(num_epochs=1)), r"belongs to another order"),
    "in order": (state_of(build(shuffle=False)), r"belongs to another order"),
    "another shard": (
        state_of(build(shard=gm.ShardOptions(1, 2))),
        r"^The state belongs to another shard: 1 of 2 there, 0 of 1 here\. For another number",
    ),
    "another batch size": (
        state_of(build(operations=[gm.Batch(3)])),
        r"^The state belongs to other steps: .*, Batch\(3\)\] there, .*, Batch\(2\)\] here\.",
    ),
    "more steps": (
        state_of(build(operations=[abs, gm.Batch(2)])),
        r"Map abs, Batch\(2\)\] there",
    ),
    "flat map": (state_of(build(operations=[Split(), gm.Batch(2)])), r"belongs to other steps"),
}
REFUSED_BY_DATASETS: dict[str, tuple[Any, str]] = {
    **damages(DATASET_STATE),
    "of a loader": (STATE, r"^The state belongs to another source: tuple"),
    "other data": (
        state_of(dataset(start=1)),
        r"^The state belongs to another source: .*stop=21, .* there, .*stop=20, .* here\.",
    ),
    "another seed": (state_of(dataset(seed=2)), r"belongs to another order: .*seed=2.* there"),
    "another number of epochs": (state_of(dataset(num_epochs=3)), r"belongs to another order"),
    "in order": (state_of(dataset(shuffle=False)), r"belongs to another order"),
    "another shard": (
        state_of(dataset(shard=(1, 2))),
        r"^The state belongs to another shard: 1 of 2 there, 0 of 1 here\. For another number",
    ),
    "another batch size": (
        state_of(dataset(batch_size=3)),
        r"^The state belongs to other steps: .*Batch\(3\)\] there, .*Batch\(2\)\] here\.",
    ),
    "another function": (state_of(dataset(function=int)), r"other steps: .*Map int.*Map abs"),
}
CASES = [(build, name, *REFUSED[name]) for name in REFUSED]
CASES += [(dataset, name, *REFUSED_BY_DATASETS[name]) for name in REFUSED_BY_DATASETS]


@pytest.mark.parametrize("is_ahead", [False, True], ids=["inline", "ahead"])
@pytest.mark.parametrize(
    ("make", "state", "message"),
    [(make, state, message) for make, _, state, message in CASES],
    ids=[f"{make.__name__}, {name}" for make, name, *_ in CASES],
)
def test_a_state_that_does_not_fit_reports_why_and_changes_nothing(
    make: Callable[[], Any], state: Any, message: str, is_ahead: bool
):
    expected = [batch.tolist() for batch in make()]
    iterator = iter(make())
    if is_ahead:
        iterator.start_prefetch()
    taken = [next(iterator).tolist() for _ in range(4)]
    before = iterator.get_state()
    with pytest.raises(StateError, match=message):
        iterator.set_state(state)
    assert iterator.get_state() == before
    assert taken + [batch.tolist() for batch in iterator] == expected


def test_a_seed_that_only_random_maps_see_is_part_of_the_order():
    def loader(seed: int) -> gm.DataLoader:
        return gm.DataLoader(
            data_source=range(20), sampler=gm.SequentialSampler(20, gm.NoSharding(), seed)
        )

    with pytest.raises(StateError, match=r"another order: .*seed=2\)\] there, .*seed=1\)\] here"):
        iter(loader(1)).set_state(state_of(loader(2)))


class Counter(gm.DatasetIterator[int]):
    """A user's iterator whose state is a number."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def __next__(self) -> int:
        self._next += 1
        return self._next - 1

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = int(state["next"])


class Counting(gm.IterDataset[int]):
    def __iter__(self) -> Counter:
        return Counter()


def windowed() -> gm.IterDataset[int]:
    records = gm.MapDataset.range(40).to_iter_dataset()
    return gm.experimental.WindowShuffleIterDataset(records, window_size=5, seed=1)


def mixed() -> gm.IterDataset[int]:
    return gm.IterDataset.mix([gm.MapDataset.range(40).to_iter_dataset()] * 2, [0.5, 0.5])


@pytest.mark.parametrize("is_ahead", [False, True], ids=["inline", "ahead"])
@pytest.mark.parametrize("inner", [None, 3, "x", [], ["x"], {"next": "x"}, {}], ids=repr)
@pytest.mark.parametrize("make", [Counting, windowed, mixed])
def test_a_state_with_nonsense_within_is_refused_at_once(make: Any, inner: Any, is_ahead: bool):
    made = make().map(lambda x: x)
    expected = list(islice(made, 8))
    iterator = iter(made)
    if is_ahead:
        iterator.start_prefetch()
    taken = [next(iterator) for _ in range(4)]
    before = iterator.get_state()
    nonsense = resigned(before, cursor=[inner])
    with pytest.raises(
        StateError, match=r"^The state is corrupt: (it does not fit|its position is)"
    ):
        iterator.set_state(nonsense)
    assert iterator.get_state() == before
    assert taken + list(islice(iterator, 4)) == expected
    iterator.close()


@pytest.mark.parametrize(
    "cursor", [[], ["6"], [True], [6.0], [-1], [41], [6, 0], [None], [[6]]], ids=repr
)
@pytest.mark.parametrize("make", [build, dataset])
def test_a_cursor_that_is_none_of_the_streams_is_refused(make: Any, cursor: Any):
    iterator = iter(make())
    state = iterator.get_state()
    body = resigned(json.loads(state) if isinstance(state, bytes) else state, cursor=cursor)
    with pytest.raises(StateError, match=r"^The state is corrupt: its position is \("):
        iterator.set_state(body)
    assert iterator.get_state() == state


@pytest.mark.parametrize("pieces", ["1", -1, None, 1.0, True], ids=repr)
def test_pieces_that_are_no_number_are_refused(pieces: Any):
    iterator = iter(build(operations=[Split()]))
    body = resigned(json.loads(iterator.get_state()), cursor=[3, pieces])
    with pytest.raises(StateError, match=r"^The state is corrupt: its position is \(3, "):
        iterator.set_state(json.dumps(body).encode())
    assert len(list(iterator)) == 80


# States that are taken


def test_a_state_that_does_not_fit_is_refused_by_a_new_iterator_too():
    with pytest.raises(StateError, match=r"^The state is truncated"):
        gm.DataLoaderIterator(build(), STATE[:-20])


def test_a_state_given_to_a_new_iterator_is_where_it_starts():
    iterator = gm.DataLoaderIterator(build(), STATE)
    assert iterator.get_state() == STATE
    assert next(iterator).tolist() == list(build())[3].tolist()


@pytest.mark.parametrize(
    ("make", "state"), [(build, STATE), (dataset, DATASET_STATE)], ids=["loader", "dataset"]
)
@pytest.mark.parametrize("as_is", [bytes, str, dict])
def test_a_state_is_taken_as_bytes_text_and_dict(make: Any, state: Any, as_is: type):
    body = json.loads(state) if isinstance(state, bytes) else state
    forms = {bytes: json.dumps(body).encode(), str: json.dumps(body), dict: body}
    iterator = iter(make())
    iterator.set_state(forms[as_is])
    assert next(iterator).tolist() == list(make())[3].tolist()


def test_unvalidated_states_of_another_pipeline_are_taken_within_its_bounds():
    other = build(seed=2)
    iterator = gm.DataLoaderIterator(other, STATE, validate_state=False)
    assert next(iterator).tolist() == list(other)[3].tolist()


def test_unvalidated_states_past_the_end_are_refused():
    small = gm.load(range(3), num_epochs=1)
    message = r"^The state is corrupt: its position is \(6,\), the stream has 3 records\. Restore"
    with pytest.raises(StateError, match=message):
        gm.DataLoaderIterator(small, STATE, validate_state=False)


def test_unvalidated_states_of_another_number_of_flat_maps_are_refused():
    with pytest.raises(StateError, match=r"^The state is corrupt: its position is"):
        gm.DataLoaderIterator(build(operations=[Split()]), STATE, validate_state=False)


def named_mix(*names: str) -> gm.IterDataset[int]:
    starts = {"a": 0, "b": 100, "c": 200}
    datasets = {
        name: gm.MapDataset.range(starts[name], starts[name] + 50).to_iter_dataset()
        for name in names
    }
    return gm.IterDataset.mix(datasets, dict.fromkeys(names, 1.0))


@pytest.mark.parametrize(
    ("before", "after"), [("ab", "abc"), ("abc", "ac"), ("ab", "bc"), ("a", "ab"), ("ab", "b")]
)
def test_datasets_of_a_named_mix_come_and_go_and_the_others_go_on(before: str, after: str):
    iterator = iter(named_mix(*before))
    taken = list(islice(iterator, 3 * len(before)))
    resumed = iter(named_mix(*after))
    resumed.set_state(iterator.get_state())

    rest = list(islice(resumed, 3 * len(after)))

    for number, name in enumerate("abc"):
        if name in after:
            mine = [value for value in taken + rest if value // 100 == number]
            assert mine == list(range(100 * number, 100 * number + len(mine)))


def test_another_dataset_under_a_name_of_the_mix_is_refused():
    other = {"a": gm.MapDataset.range(7).to_iter_dataset()}
    state = iter(gm.IterDataset.mix(other, {"a": 1.0})).get_state()
    with pytest.raises(
        StateError, match=r"another source in dataset a: .*stop=7.* there, .*stop=50"
    ):
        iter(named_mix("a", "b")).set_state(state)


# What a state holds


LOADER_WAYS: list[dict[str, Any]] = [
    {"worker_count": 3},
    {"worker_count": None},
    {"worker_buffer_size": 7},
    {"read_options": gm.ReadOptions(num_threads=0)},
    {"read_options": gm.ReadOptions(1, 1)},
]


@pytest.mark.parametrize("way", LOADER_WAYS, ids=repr)
def test_how_a_loader_runs_is_no_part_of_its_state(way: dict[str, Any]):
    def loader(**options: Any) -> gm.DataLoader:
        return gm.DataLoader(
            data_source=range(20),
            sampler=gm.IndexSampler(20, num_epochs=1),
            operations=[gm.Batch(3)],
            **options,
        )

    state = state_of(loader())
    assert state_of(loader(**way)) == state
    iterator = gm.DataLoaderIterator(loader(**way), state)
    assert next(iterator).tolist() == [9, 10, 11]


DATASET_WAYS: dict[str, Callable[[Any], Any]] = {
    "workers": lambda ds: ds.mp_prefetch(gm.MultiprocessingOptions(num_workers=2)),
    "larger buffers": lambda ds: ds.mp_prefetch(
        gm.MultiprocessingOptions(num_workers=1, per_worker_buffer_size=5)
    ),
    "a thread": lambda ds: gm.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=3),
}


@pytest.mark.parametrize("way", DATASET_WAYS.values(), ids=DATASET_WAYS.keys())
def test_how_a_dataset_runs_is_no_part_of_its_state(way: Callable[[Any], Any]):
    def records(threads: int = 16) -> Any:
        ds = gm.MapDataset.range(20).shuffle(seed=1)
        return ds.to_iter_dataset(gm.ReadOptions(num_threads=threads)).batch(3)

    state = state_of(records())
    assert state_of(records(threads=0)) == state
    assert state_of(way(records())) == state
    iterator = iter(way(records()))
    iterator.set_state(state)
    assert next(iterator).tolist() == list(records())[3].tolist()


def test_the_same_pipeline_built_elsewhere_takes_the_state():
    def elsewhere() -> gm.DataLoader:
        return build(tuple(range(20)))

    iterator = iter(elsewhere())
    iterator.set_state(STATE)
    assert next(iterator).tolist() == list(build())[3].tolist()


def test_a_state_holds_no_data_and_no_address():
    source = gm.ArraySource({"x": np.full(20, 123454321)})
    state = state_of(build(source, operations=[lambda x: x, Split()])).decode()
    assert "123454321" not in state
    assert "0x" not in state
    assert len(state) < 1000


class Counted:
    """Records that note which of them were read."""

    def __init__(self, num_records: int) -> None:
        self._num_records = num_records
        self._lock = threading.Lock()
        self.num_read = 0

    def __len__(self) -> int:
        return self._num_records

    def __getitem__(self, index: int) -> int:
        with self._lock:
            self.num_read += 1
        return int(index)

    def __repr__(self) -> str:
        return f"Counted({self._num_records})"


FAR = 10**9


def far_loader(source: Any) -> Iterator[Any]:
    sampler = gm.IndexSampler(len(source), shuffle=True, seed=1)
    options = gm.ReadOptions(num_threads=0)
    return iter(gm.DataLoader(data_source=source, sampler=sampler, read_options=options))


def far_dataset(source: Any) -> Iterator[Any]:
    records = gm.MapDataset.source(source).shuffle(seed=1).repeat()
    return iter(records.to_iter_dataset(gm.ReadOptions(num_threads=0)))


@pytest.mark.parametrize("make", [far_loader, far_dataset])
def test_a_state_is_as_small_and_as_quickly_restored_after_a_billion_steps(make: Any):
    sizes: list[int] = []
    for step in (10, FAR):
        source = Counted(1000)
        iterator = make(source)
        reported = iterator.get_state()
        body = json.loads(reported) if isinstance(reported, bytes) else reported
        iterator.set_state(resigned(body, cursor=[step]))
        next(iterator)
        state = iterator.get_state()
        body = json.loads(state) if isinstance(state, bytes) else state
        assert body["cursor"] == [step + 1]
        sizes.append(len(json.dumps(body)) - len(str(body["cursor"])) - len(str(body["checksum"])))
        assert source.num_read < 10_000  # a block, whose size depends on how fast they come
    assert sizes[0] == sizes[1] < 500
