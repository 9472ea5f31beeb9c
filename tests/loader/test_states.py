"""A state that does not fit is refused with a reason, and the iterator stays as it was."""

import json
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


class Split(gm.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


def state_of(loader: gm.DataLoader, taken: int = 3) -> bytes:
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    return iterator.get_state()


STATE = state_of(build())

REFUSED: dict[str, tuple[Any, str]] = {
    "truncated": (STATE[:-20], r"^The state is truncated"),
    "empty": (b"", r"^The state is (truncated|corrupt)"),
    "corrupt": (STATE.replace(b'"position": 6', b'"position": 8'), r"^The state is corrupt"),
    "noise": (b"\x93NUMPY\x01", r"^The state is corrupt: it is not JSON\."),
    "not ours": (b'{"step": 3}', r"^The state is not one of gristmill's\."),
    "a dict": (json.loads(STATE), r"^A state is bytes, got dict\."),
    "nothing": (None, r"^A state is bytes, got NoneType\."),
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
        r"^The state belongs to another shard: 1 of 2 there, 0 of 1 here\.",
    ),
    "another batch size": (
        state_of(build(operations=[gm.Batch(3)])),
        r"^The state belongs to other steps: \[Batch\(3\)\] there, \[Batch\(2\)\] here\.",
    ),
    "more steps": (
        state_of(build(operations=[abs, gm.Batch(2)])),
        r"\[Map abs, Batch\(2\)\] there",
    ),
    "flat map": (state_of(build(operations=[Split(), gm.Batch(2)])), r"belongs to other steps"),
    "another version": (
        STATE.replace(b'"gristmill": 1', b'"gristmill": 99'),
        r"^The state is of version 99, this gristmill reads 1\.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_does_not_fit_says_why_and_changes_nothing(name: str):
    state, message = REFUSED[name]
    expected = [batch.tolist() for batch in build()]
    iterator = iter(build())
    taken = [next(iterator).tolist() for _ in range(4)]
    before = iterator.get_state()
    with pytest.raises(StateError, match=message):
        iterator.set_state(state)
    assert iterator.get_state() == before
    assert taken + [batch.tolist() for batch in iterator] == expected


def test_a_state_that_does_not_fit_is_refused_by_a_new_iterator_too():
    with pytest.raises(StateError, match=r"^The state is truncated"):
        gm.DataLoaderIterator(build(), STATE[:-20])


def test_a_state_given_to_a_new_iterator_is_where_it_starts():
    iterator = gm.DataLoaderIterator(build(), STATE)
    assert iterator.get_state() == STATE
    assert next(iterator).tolist() == list(build())[3].tolist()


def test_unvalidated_states_of_another_pipeline_are_taken_within_its_bounds():
    other = build(seed=2)
    iterator = gm.DataLoaderIterator(other, STATE, validate_state=False)
    assert next(iterator).tolist() == list(other)[3].tolist()


def test_unvalidated_states_past_the_end_are_refused():
    small = gm.load(range(3), num_epochs=1)
    message = r"^The state is corrupt: it stands at \(6,\), the stream has 3 records\.$"
    with pytest.raises(StateError, match=message):
        gm.DataLoaderIterator(small, STATE, validate_state=False)


def test_unvalidated_states_of_another_number_of_flat_maps_are_refused():
    with pytest.raises(StateError, match=r"^The state is corrupt: it stands at"):
        gm.DataLoaderIterator(build(operations=[Split()]), STATE, validate_state=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"worker_count": 3},
        {"worker_buffer_size": 7},
        {"read_options": gm.ReadOptions(num_threads=0)},
        {"read_options": gm.ReadOptions(1, 1)},
    ],
    ids=repr,
)
def test_how_a_loader_runs_is_no_part_of_its_state(changed: dict[str, Any]):
    def loader(**options: Any) -> gm.DataLoader:
        return (
            gm.load(range(20), num_epochs=1, batch_size=3)
            if not options
            else gm.DataLoader(
                data_source=range(20),
                sampler=gm.IndexSampler(20, num_epochs=1),
                operations=[gm.Batch(3)],
                **options,
            )
        )

    state = state_of(loader())
    assert state_of(loader(**changed)) == state
    iterator = gm.DataLoaderIterator(loader(**changed), state)
    assert next(iterator).tolist() == [9, 10, 11]


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
