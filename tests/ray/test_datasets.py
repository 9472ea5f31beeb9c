"""Datasets on Ray: mixed, packed, bucketed and unbatched as in this process."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gristmill as gm
from tests.equivalence.executors import by_value, exact
from tests.equivalence.test_datasets import READS, Pipeline, pipelines, rest, run
from tests.ray.clusters import ray_options

by_value(__name__)
by_value("tests.equivalence.test_datasets")

pytestmark = pytest.mark.usefixtures("cluster")


@given(pipeline=pipelines(most_parts=2), cut=st.integers(0, 99))
@settings(
    deadline=None, print_blob=True, max_examples=3, suppress_health_check=[HealthCheck.too_slow]
)
@pytest.mark.filterwarnings("ignore:There will be no batch")
def test_actors_change_nothing_and_states_restore_anywhere(pipeline: Pipeline, cut: int):
    inline = pipeline.build(gm, READS["inline"])
    on_ray = inline.mp_prefetch(ray_options(num_workers=2))
    elements, states = run(inline)

    assert run(on_ray) == (elements, states)
    place = cut % len(states)
    assert list(rest(on_ray, states[place])) == elements[place:]


def document(number: int) -> Any:
    return {"t": np.full(number % 13 + 1, number)}


def documents(total: int) -> gm.MapDataset[Any]:
    return gm.MapDataset.range(total).shuffle(seed=1).map(document)


def packed() -> Any:
    mixed = gm.MapDataset.mix([documents(120), documents(200)], [0.3, 0.7]).to_iter_dataset()
    return gm.experimental.FirstFitPackIterDataset(
        mixed, length_struct={"t": 32}, num_packing_bins=4
    ).batch(4)


def bucketed() -> Any:
    return documents(200).to_iter_dataset().bucket_by_length([4, 13], batch_sizes=5, length="t")


def unbatched() -> Any:
    return gm.MapDataset.range(200).batch(6).unbatch().to_iter_dataset()


@pytest.mark.parametrize("make", [packed, bucketed, unbatched])
def test_steps_above_and_below_the_cut_are_the_same(make: Callable[[], Any]):
    with closing(iter(make())) as iterator:
        expected = [(exact(element), iterator.get_state()) for element in iterator]
    with closing(iter(make().mp_prefetch(ray_options(num_workers=2)))) as iterator:
        found = [(exact(element), iterator.get_state()) for element in iterator]

    assert found == expected
    assert len(found) > 10
