"""States as arrays of integers: what trees of arrays hold, and `set_state` takes."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from gristmill import DataLoader, IndexSampler, IterDataset, MapDataset
from gristmill._base.grain.mode import VARIABLE
from gristmill._checkpoint.array_state import (
    state_from_arrays,
    state_to_arrays,
)
from gristmill._checkpoint.files import to_json
from gristmill.checkpoint import gather_states
from gristmill.errors import StateError
from gristmill.experimental import (
    ElasticIterator,
    WindowShuffleIterDataset,
    assert_equal_output_after_checkpoint,
)
from gristmill.options import ShardOptions


def mixed() -> IterDataset[Any]:
    first = MapDataset.range(20).shuffle(seed=1).to_iter_dataset()
    second = WindowShuffleIterDataset(
        MapDataset.range(100, 140).to_iter_dataset(), window_size=4, seed=2
    )
    return IterDataset.mix({"first": first, "second": second}, {"first": 1, "second": 2})


def loader() -> DataLoader:
    return DataLoader(data_source=range(9), sampler=IndexSampler(9, shuffle=True, seed=1))


@pytest.fixture
def integer_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")


@pytest.mark.parametrize("make", [mixed, loader, lambda: MapDataset.range(9)])
def test_an_iterator_continues_from_arrays(make: Any):
    iterator = iter(make())
    for _ in range(5):
        next(iterator)
    arrays = state_to_arrays(iterator.get_state())
    again = iter(make())
    again.set_state(arrays)

    assert again.get_state() == iterator.get_state()
    assert next(again) == next(iterator)


def test_a_tree_of_arrays_with_a_state_is_saved_and_restored_by_orbax(tmp_path: Path):
    iterator = iter(mixed())
    for _ in range(7):
        next(iterator)
    tree = {"weights": jnp.ones(3), "data": state_to_arrays(iterator.get_state())}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", tree)
        checkpointer.wait_until_finished()
        target = {"weights": jnp.zeros(3), "data": state_to_arrays(iter(mixed()).get_state())}
        restored = checkpointer.restore(tmp_path / "step", target)
    again = iter(mixed())
    again.set_state(restored["data"])

    assert list(again) == list(iterator)


def test_arrays_of_jax_are_taken():
    iterator = iter(MapDataset.range(9))
    next(iterator)
    arrays = jax.tree.map(jnp.asarray, state_to_arrays(iterator.get_state()))
    again = iter(MapDataset.range(9))
    again.set_state(arrays)

    assert next(again) == 1


def test_shapes_stay_the_same_while_the_stream_advances():
    dataset = MapDataset.range(10**18).to_iter_dataset().batch(2)
    iterator = iter(dataset)
    shapes = [jax.tree.map(np.shape, state_to_arrays(iterator.get_state()))]
    for index in (1, 10**6, 10**17):
        gristmill.experimental.set_next_index(iterator, index)
        shapes.append(jax.tree.map(np.shape, state_to_arrays(iterator.get_state())))

    assert all(one == shapes[0] for one in shapes)


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.integers() | st.text() | st.booleans(), st.lists)
    )
)
def test_any_state_comes_back_from_arrays(fields: dict[str, Any]):
    state = {"gristmill": 1, **fields, "steps": ["Map é", "Batch(2)"]}

    assert state_from_arrays(state_to_arrays(state)) == state
    assert state_from_arrays(state_to_arrays(state_to_arrays(state))) == state


def test_the_states_of_all_shards_are_gathered_from_arrays():
    shards = [iter(MapDataset.range(9)[index::2]) for index in range(2)]
    for shard in shards:
        next(shard)
    state = gather_states([state_to_arrays(shard.get_state()) for shard in shards])
    third = iter(MapDataset.range(9)[2::3])
    third.set_state(state)

    assert list(third) == [4, 7]


@pytest.mark.parametrize(
    "change",
    [
        {"gristmill": np.zeros((2, 2), dtype=np.int32)},
        {"gristmill": np.zeros(64)},
        {"gristmill": np.full(64, 1 << 24)},
        {"gristmill": np.full(64, -1)},
        {"gristmill": np.zeros(64, dtype=np.int32)},
        {"gristmill": []},
        {"pipeline": np.zeros(8, dtype=np.int32)},
        {"pipeline": None},
    ],
    ids=repr,
)
def test_arrays_without_a_state_are_refused(change: dict[str, Any]):
    iterator = iter(MapDataset.range(9))
    with pytest.raises(StateError, match=r"^The state is corrupt: its arrays do not contain"):
        iterator.set_state({**state_to_arrays(iterator.get_state()), **change})


def test_one_changed_integer_is_found():
    iterator = iter(MapDataset.range(9))
    arrays = state_to_arrays(iterator.get_state())
    arrays["pipeline"][4] ^= 1
    with pytest.raises(StateError, match=r"^The state is corrupt"):
        iterator.set_state(arrays)


def test_a_state_that_is_not_json_names_the_remedy():
    with pytest.raises(
        StateError, match=r"^The state cannot be converted to arrays: .*`get_state`"
    ):
        state_to_arrays({"gristmill": 1, "cursor": [object()]})


# States of integers from `get_state` itself


@pytest.mark.usefixtures("integer_states")
def test_states_of_integers_are_json_and_trees_of_integers():
    iterator = iter(mixed())
    next(iterator)
    state = iterator.get_state()

    assert {type(leaf) for leaf in jax.tree.leaves(state)} == {int}
    again = iter(mixed())
    again.set_state(json.loads(json.dumps(state)))
    assert list(again) == list(iterator)


@pytest.mark.usefixtures("integer_states")
def test_states_of_integers_resume_everywhere():
    assert_equal_output_after_checkpoint(mixed())
    assert_equal_output_after_checkpoint(mixed().map(lambda x: x + 1).batch(3))
    elastic = ElasticIterator(MapDataset.range(9), 4, ShardOptions(0, 2))
    next(elastic)
    other = ElasticIterator(MapDataset.range(9), 4, ShardOptions(1, 2))
    other.set_state(elastic.get_state())
    assert next(other).tolist() == [5, 7]


@pytest.mark.usefixtures("integer_states")
def test_files_contain_the_same_json_for_states_of_integers(monkeypatch: pytest.MonkeyPatch):
    iterator = iter(mixed())
    next(iterator)
    written = to_json(iterator.get_state())
    monkeypatch.delenv(VARIABLE)

    assert json.loads(written) == iterator.get_state()


@pytest.mark.usefixtures("integer_states")
def test_a_loaders_state_stays_bytes_as_in_grain():
    assert isinstance(iter(loader()).get_state(), bytes)


@pytest.mark.usefixtures("integer_states")
def test_orbax_saves_a_tree_with_the_result_of_get_state(tmp_path: Path):
    iterator = iter(MapDataset.range(9))
    next(iterator)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", {"it": iterator.get_state()})
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "step", {"it": iterator.get_state()})
    again = iter(MapDataset.range(9))
    again.set_state(restored["it"])

    assert list(again) == list(range(1, 9))
