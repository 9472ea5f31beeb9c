"""`ShardByMesh`: which shard a process loads. Real processes are in `test_processes.py`."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import gristmill as gm
from gristmill._api.feeding.mesh_shards import row_groups
from gristmill._base import log_once
from gristmill._data.sampling.shard_options import EMPTY_SHARD_COUNT
from gristmill.checkpoint import gather_states
from gristmill.errors import GristmillWarning, PlanError, PlanTypeError


@dataclass(frozen=True)
class FakeDevice:
    process_index: int


@dataclass(frozen=True)
class FakeMesh:
    """A mesh over the devices of processes that are not here."""

    processes: Any
    axis_names: tuple[str, ...]

    @property
    def devices(self) -> Any:
        return np.vectorize(FakeDevice, otypes=[object])(np.array(self.processes))


def groups(processes: Any, names: str, axes: str) -> list[list[int]]:
    mesh = FakeMesh(processes, tuple(names))
    return [sorted(group) for group in row_groups(mesh, tuple(axes))]


def test_processes_that_hold_the_same_rows_are_one_group():
    assert groups([0, 0, 1, 1], "d", "d") == [[0], [1]]
    assert groups([[0, 0], [1, 1]], "dm", "d") == [[0], [1]]
    assert groups([[0, 0], [1, 1]], "dm", "m") == [[0, 1]]
    assert groups([[0, 1], [2, 3]], "dm", "d") == [[0, 1], [2, 3]]
    assert groups([[0, 1], [2, 3]], "dm", "dm") == [[0], [1], [2], [3]]
    assert groups([[0, 1], [2, 3]], "dm", "md") == [[0], [2], [1], [3]]
    assert groups([[3, 3], [2, 2]], "dm", "d") == [[3], [2]]
    assert groups([[[0], [1]], [[2], [3]]], "dfm", "df") == [[0], [1], [2], [3]]


@pytest.mark.parametrize("processes", [[[0, 0], [0, 1]], [0, 1, 1], [[0, 1], [1, 2], [2, 0]]])
def test_rows_that_overlap_in_part_have_no_shards(processes: Any):
    names = "dm"[: np.ndim(processes)]
    with pytest.raises(PlanError, match="Order the devices of the mesh by process"):
        groups(processes, names, "d")


def test_the_axis_must_exist():
    with pytest.raises(PlanError, match=r"`axis` must be one of the axes .*\('d',\), got \('x',\)"):
        groups([0, 1], "d", "x")
    with pytest.raises(PlanError, match="`axis` must be one of"):
        groups([0, 1], "d", "")


def mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()), ("data",))


def test_one_process_loads_everything():
    assert gm.ShardByMesh(mesh(), "data") == gm.ShardByMesh(mesh(), ("data",))
    shard = gm.ShardByMesh(mesh(), "data", processes=[0], drop_remainder=True)
    assert (shard.shard_index, shard.shard_count, shard.drop_remainder) == (0, 1, True)


def test_arguments_are_checked():
    wrong: Any = "mesh"
    with pytest.raises(PlanTypeError, match=r"`mesh` must be a `jax\.sharding\.Mesh`"):
        gm.ShardByMesh(wrong, "data")
    with pytest.raises(PlanError, match=r"None of the processes \[3\] has a device in the mesh"):
        gm.ShardByMesh(mesh(), "data", processes=[3])


def test_an_empty_shard_has_no_records():
    empty = gm.ShardOptions(EMPTY_SHARD_COUNT - 1, EMPTY_SHARD_COUNT)
    for num_epochs in (2, None):
        in_sampler = gm.IndexSampler(10, empty, num_epochs=num_epochs)
        assert [*gm.DataLoader(data_source=range(10), sampler=in_sampler)] == []
        in_loader = gm.IndexSampler(10, num_epochs=num_epochs)
        loader = gm.DataLoader(data_source=range(10), sampler=in_loader, shard_options=empty)
        assert [*loader] == []


def test_states_of_processes_with_the_same_shard_are_gathered_once():
    def shard(index: int, count: int) -> Any:
        sampler = gm.IndexSampler(12, num_epochs=1)
        options = gm.ShardOptions(index, count)
        return iter(gm.DataLoader(data_source=range(12), sampler=sampler, shard_options=options))

    empty = shard(EMPTY_SHARD_COUNT - 1, EMPTY_SHARD_COUNT)
    pairs = [shard(0, 2), shard(0, 2), shard(1, 2), shard(1, 2)]
    seen = [next(iterator) for iterator in pairs]
    assert seen == [0, 0, 1, 1]
    state = gather_states([iterator.get_state() for iterator in [*pairs, empty]])
    after = [shard(index, 3) for index in range(3)]
    for iterator in after:
        iterator.set_state(state)
    assert sorted(x for iterator in after for x in iterator) == [*range(2, 12)]


def test_feeding_single_numbers_warns_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_once, "_seen", set[str]())
    loader = gm.load(np.arange(3, dtype=np.int32), num_epochs=1)
    with pytest.warns(GristmillWarning, match="single numbers, not batches") as caught:
        list(gm.feed(loader))
    assert caught[0].filename == __file__  # also from the thread of the feed
    assert [int(x) for x in gm.feed(loader, prefetch=0)] == [0, 1, 2]
