"""The states of a feed: those of its source, restored on either side."""

import gc
import weakref
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill._api.feeding.iterator import FeedIterator
from gristmill._api.feeding.remainder import RemainderMode
from gristmill.errors import StateError
from tests.api.feeding.batches import EACH_PREFETCH, fed, lists, loader, numbers


@settings(deadline=None, max_examples=60)
@given(
    num_records=st.integers(1, 30),
    batch_size=st.integers(1, 7),
    prefetch=st.integers(0, 5),
    remainder=st.sampled_from(["keep", "drop", "pad"]),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_the_state_is_that_after_the_last_returned_batch(
    num_records: int,
    batch_size: int,
    prefetch: int,
    remainder: RemainderMode,
    seed: int,
    data: st.DataObject,
):
    make = partial(loader, num_records, batch_size, shuffle=True, seed=seed)
    own = iter(make())
    states = [own.get_state()]
    states.extend(own.get_state() for _ in own)
    own.close()
    expected = fed(make(), remainder=remainder, prefetch=0)
    cut = data.draw(st.integers(0, len(expected)), label="cut")

    iterator = gm.feed(make(), remainder=remainder, prefetch=prefetch)
    head = lists(islice(iterator, cut))
    assert iterator.get_state() == states[cut]
    iterator.close()
    assert iterator.get_state() == states[cut]

    resumed = iter(make())  # an iterator of the loader resumes from it
    resumed.set_state(states[cut])
    assert head + fed(resumed, remainder=remainder, prefetch=prefetch) == expected
    again = gm.feed(make(), remainder=remainder, prefetch=prefetch)  # and the other way round
    list(islice(again, 1))
    again.set_state(states[cut])
    assert again.get_state() == states[cut]
    assert lists(again) == expected[cut:]
    again.close()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_the_state_is_the_same_with_workers(prefetch: int):
    with gm.feed(loader(60, 4, worker_count=1), prefetch=prefetch) as iterator:
        head = lists(islice(iterator, 5))
        state = iterator.get_state()
        rest = lists(iterator)
    own = iter(loader(60, 4))
    list(islice(own, 5))

    assert state == own.get_state()
    assert head + rest == [list(range(n, n + 4)) for n in range(0, 60, 4)]
    own.close()


@EACH_PREFETCH
def test_after_the_end_a_state_can_be_set_and_the_rest_is_fed_again(prefetch: int):
    with gm.feed(loader(), prefetch=prefetch) as iterator:
        next(iterator)
        state = iterator.get_state()
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]
        end = iterator.get_state()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
        iterator.set_state(state)
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]
        assert iterator.get_state() == end
        iterator.set_state(end)
        assert lists(iterator) == []


@EACH_PREFETCH
def test_a_rejected_state_does_not_move_the_iterator(prefetch: int):
    with gm.feed(loader(), prefetch=prefetch) as iterator:
        next(iterator)
        state = iterator.get_state()
        with pytest.raises(StateError):
            iterator.set_state(b"not a state")

        assert iterator.get_state() == state
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]


def test_setting_states_repeatedly_keeps_no_prefetched_batches_alive():
    with gm.feed(numbers(40).batch(4)) as iterator:
        state = iterator.get_state()
        next(iterator)
        runs = [weakref.ref(iterator._producer._batches)]
        for _ in range(3):
            iterator.set_state(state)
            next(iterator)
            runs.append(weakref.ref(iterator._producer._batches))
        gc.collect()

        assert [run() is None for run in runs] == [True, True, True, False]


def test_orbax_saves_a_feed_beside_its_model(tmp_path: Path):
    def make() -> FeedIterator:
        return gm.feed(loader(20, shuffle=True, seed=1), jax.devices()[0], prefetch=3)

    weights = {"w": jnp.arange(4.0)}
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager, make() as iterator:
        list(islice(iterator, 2))
        manager.save(
            2,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(weights), data=gm.PyGrainCheckpointSave(iterator)
            ),
        )
        rest = lists(iterator)
        manager.wait_until_finished()

        with make() as restored:
            items = manager.restore(
                2,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore(weights),
                    data=gm.PyGrainCheckpointRestore(restored),
                ),
            )
            assert items.data is restored
            assert lists(restored) == rest
    assert len(rest) == 3
    np.testing.assert_array_equal(items.model["w"], weights["w"])
