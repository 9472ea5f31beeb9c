"""Placing batches on eight devices of one process.

JAX must know the number of devices before it starts. So all checks run in one process of their
own: this file as a program, which prints the result of each check.
"""

import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import gristmill as gm
from gristmill._api.feeding.remainder import RemainderMode
from gristmill._api.loader.load import load
from gristmill.errors import FeedError
from tests.api.feeding.batches import Watched

P = PartitionSpec
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Run a function in the process that has eight devices."""
    CHECKS[function.__name__] = function
    return function


def row_mesh() -> Mesh:
    return jax.make_mesh((8,), ("data",))


def grid() -> Mesh:
    return jax.make_mesh((4, 2), ("data", "model"))


def loader(num_records: int = 32, batch_size: int = 16, **arguments: Any) -> gm.DataLoader:
    records = np.arange(num_records * 4, dtype=np.float32).reshape(num_records, 4)
    return load(records, num_epochs=1, batch_size=batch_size, **arguments)


def trees(num_records: int = 32, batch_size: int = 16) -> gm.MapDataset[Any]:
    def record(index: int) -> Any:
        return {"image": np.full(4, index, np.float32), "label": np.int32(index)}

    return gm.MapDataset.range(num_records).map(record).batch(batch_size)


def fed(data: Any, *where: Any, **arguments: Any) -> list[Any]:
    with gm.feed(data, *where, **arguments) as iterator:
        return list(iterator)


def host(data: Any) -> list[Any]:
    return list(data)


def assert_equal(batches: list[Any], expected: list[Any]) -> None:
    assert jax.tree.structure(batches) == jax.tree.structure(expected)
    for mine, other in zip(jax.tree.leaves(batches), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), other)


def shard_shapes(array: jax.Array) -> set[tuple[int, ...]]:
    return {shard.data.shape for shard in array.addressable_shards}


# Targets


@check
def one_device_of_eight_gets_all() -> None:
    device = jax.devices()[5]
    batches = fed(loader(), device)
    assert [batch.devices() for batch in batches] == [{device}] * 2
    assert all(batch.committed for batch in batches)
    assert_equal(batches, host(loader()))


@check
def without_a_device_all_goes_to_the_default_one_uncommitted() -> None:
    batches = fed(loader())
    assert [batch.devices() for batch in batches] == [{jax.devices()[0]}] * 2
    assert not any(batch.committed for batch in batches)


@check
def the_default_device_is_that_of_the_users_thread() -> None:
    device = jax.devices()[3]
    for prefetch in (0, 2):
        with jax.default_device(device):
            iterator = gm.feed(loader(), prefetch=prefetch)
            inside = next(iterator)
        outside = next(iterator)
        iterator.close()
        assert inside.devices() == outside.devices() == {device}, prefetch
        ds = gm.MapDataset.range(4).map(np.int32).to_iter_dataset()
        with jax.default_device(device):
            on_device = gm.experimental.device_put(ds, None, device_buffer_size=prefetch)
        with iter(on_device) as elements:
            assert next(elements).devices() == {device}, prefetch


@check
def a_mesh_without_a_spec_shards_the_rows_over_all_devices() -> None:
    for mesh in (row_mesh(), grid()):
        batches = fed(loader(), mesh)
        assert_equal(batches, host(loader()))
        for batch in batches:
            assert batch.sharding.is_equivalent_to(NamedSharding(mesh, P(mesh.axis_names)), 2)
            assert shard_shapes(batch) == {(2, 4)}
            assert len(batch.devices()) == 8


@check
def a_mesh_with_a_spec_shards_as_the_spec_defines() -> None:
    for spec, shape in [
        (P("data"), (4, 4)),
        (P("data", "model"), (4, 2)),
        (P(None, "model"), (16, 2)),
        (P(("model", "data")), (2, 4)),
        (P(), (16, 4)),
    ]:
        batches = fed(loader(), grid(), spec)
        assert_equal(batches, host(loader()))
        assert [batch.sharding for batch in batches] == [NamedSharding(grid(), spec)] * 2
        assert shard_shapes(batches[0]) == {shape}, spec


@check
def each_device_has_the_rows_that_device_put_would_place_there() -> None:
    for where in [(row_mesh(),), (grid(), P("data", "model")), (grid(), P(None, "data"))]:
        batch = fed(loader(), *where)[1]
        wanted = jax.device_put(host(loader())[1], batch.sharding)
        for mine, other in zip(batch.addressable_shards, wanted.addressable_shards, strict=True):
            assert (mine.device, mine.index) == (other.device, other.index)
            np.testing.assert_array_equal(mine.data, other.data)


@check
def a_sharding_is_used_as_it_is() -> None:
    for sharding in (
        NamedSharding(grid(), P("model")),
        SingleDeviceSharding(jax.devices()[2]),
        jax.sharding.NamedSharding(row_mesh(), P(None, None)),
    ):
        batches = fed(loader(), sharding)
        assert [batch.sharding for batch in batches] == [sharding] * 2
        assert_equal(batches, host(loader()))


@check
def a_tree_of_specs_defines_the_sharding_of_each_leaf() -> None:
    specs = {"image": P("data", "model"), "label": P("data")}
    for batch in fed(trees(), grid(), specs):
        assert {key: leaf.sharding.spec for key, leaf in batch.items()} == specs
    assert_equal(fed(trees(), grid(), specs), host(trees()))


@check
def a_tree_of_targets_may_mix_devices_and_shardings() -> None:
    device, rows = jax.devices()[7], NamedSharding(row_mesh(), P("data"))
    batches = fed(trees(), {"image": rows, "label": device})
    assert_equal(batches, host(trees()))
    for batch in batches:
        assert batch["image"].sharding == rows
        assert batch["label"].devices() == {device}


@jax.tree_util.register_dataclass
@dataclass
class Sample:
    """A user-defined pytree."""

    image: Any
    rest: Any


@check
def a_tree_of_targets_only_has_to_be_a_prefix_of_the_batch() -> None:
    rows, device = NamedSharding(row_mesh(), P("data")), jax.devices()[1]
    ds = trees().map(lambda batch: Sample(batch["image"], {"a": batch["label"], "b": [3, None]}))
    for batch in fed(ds, Sample(rows, device)):
        assert batch.image.sharding == rows
        assert batch.rest["a"].devices() == batch.rest["b"][0].devices() == {device}
        assert batch.rest["b"][1] is None


@check
def a_tree_that_is_not_a_prefix_raises() -> None:
    device = jax.devices()[0]
    for prefetch in (0, 2):
        iterator = gm.feed(trees(), {"image": device, "text": device}, prefetch=prefetch)
        with pytest.raises(FeedError, match="must be a prefix of the batch"):
            next(iterator)
        iterator.close()


@check
def leaves_that_are_passed_through_need_no_target() -> None:
    ds = trees().map(lambda batch: batch | {"name": np.array(["x"] * 16)})
    for batch in fed(ds, row_mesh(), unsupported="pass"):
        assert isinstance(batch["name"], np.ndarray)
        assert shard_shapes(batch["label"]) == {(2,)}


@check
def arrays_of_jax_are_moved_to_the_target() -> None:
    ds = trees().map(lambda batch: jax.tree.map(jax.numpy.asarray, batch))
    for batch in fed(ds, row_mesh()):
        assert shard_shapes(batch["image"]) == {(2, 4)}


@check
def with_64_bits_enabled_large_integers_are_fed() -> None:
    ds = gm.MapDataset.range(8).map(lambda index: np.int64(index + 2**40)).batch(8)
    with gm.feed(ds, row_mesh()) as iterator, pytest.raises(FeedError, match="enable_x64"):
        next(iterator)
    jax.config.update("jax_enable_x64", True)
    try:
        (batch,) = fed(ds, row_mesh())
    finally:
        jax.config.update("jax_enable_x64", False)
    assert batch.dtype == np.int64
    assert np.asarray(batch).tolist() == [index + 2**40 for index in range(8)]


# The last, smaller batch


@check
def rows_that_do_not_divide_evenly_raise_and_can_be_padded() -> None:
    data = loader(27)  # the last batch has 11 rows, for eight devices
    with gm.feed(data, row_mesh()) as iterator:
        next(iterator)
        state = iterator.get_state()
        with pytest.raises(ValueError, match="evenly divide") as raised:
            next(iterator)
        assert any(
            'remainder="pad"' in note and "(11, 4)" in note for note in raised.value.__notes__
        )
        assert iterator.get_state() == state
    assert_equal(fed(data, row_mesh(), remainder="drop"), host(data)[:1])

    padded = fed(data, row_mesh(), remainder="pad")
    assert [mask.sum() for _, mask in padded] == [16, 11]
    for batch, mask in padded:
        assert shard_shapes(batch) == {(2, 4)}
        assert shard_shapes(mask) == {(2,)}
    np.testing.assert_array_equal(np.asarray(padded[1][0])[:11], host(data)[1])
    assert not np.asarray(padded[1][0])[11:].any()


@check
def the_mask_is_sharded_like_the_rows() -> None:
    for specs in (
        P("data", "model"),
        {"image": P("data", "model"), "label": P("data")},
        {"a_step": P(), "image": P("data"), "label": P("data")},
    ):
        ds = trees(30)
        if isinstance(specs, dict) and "a_step" in specs:
            ds = ds.map(lambda batch: batch | {"a_step": np.int32(5)})
        elif not isinstance(specs, dict):
            ds = ds.map(lambda batch: {"image": batch["image"]})
        for batch in fed(ds, grid(), specs, remainder="pad"):
            assert batch["mask"].sharding.spec == P("data"), specs
            assert shard_shapes(batch["mask"]) == {(4,)}


@check
def the_mask_is_on_the_device_of_the_batch() -> None:
    device = jax.devices()[6]
    for batch, mask in fed(loader(20), device, remainder="pad"):
        assert batch.devices() == mask.devices() == {device}


@check
def a_step_over_all_devices_is_compiled_once_with_padding() -> None:
    wanted: dict[RemainderMode, int] = {"drop": 1, "pad": 1, "keep": 2}
    for remainder, expected in wanted.items():
        traced: list[int] = []

        @jax.jit
        def step(batch: Any, traced: list[int] = traced) -> Any:
            traced.append(1)
            return jax.tree.map(jax.numpy.sum, batch)

        with gm.feed(trees(40), row_mesh(), remainder=remainder) as iterator:  # 16, 16 and 8 rows
            for batch in iterator:
                step(batch)
        assert len(traced) == expected, remainder


# Without copies


NUM_BYTES = 2**19  # large enough for batches to be sent in shared memory


def images() -> Watched:
    return Watched(
        iter(
            gm.DataLoader(
                data_source=range(240),
                sampler=gm.IndexSampler(240, num_epochs=1),
                operations=[lambda index: np.full(2**19, index, np.uint8), gm.Batch(8)],
                worker_count=1,
            )
        )
    )


@check
def the_rows_of_workers_are_not_copied_to_the_devices() -> None:
    source = images()
    with gm.feed(source, row_mesh()) as iterator:
        for number, batch in enumerate(islice(iterator, 4)):
            for row, shard in enumerate(batch.addressable_shards):
                address = source.addresses[number] + row * NUM_BYTES
                assert shard.data.unsafe_buffer_pointer() == address


@check
def a_batch_or_a_shard_that_the_user_keeps_never_changes() -> None:
    source = images()
    kept: list[tuple[int, Any]] = []
    with gm.feed(source, row_mesh()) as iterator:
        for number, batch in enumerate(iterator):
            if number % 10 == 2:
                kept.append((8 * number, batch))
            if number % 10 == 5:
                kept.append((8 * number + 3, batch.addressable_shards[3].data))
            del batch
    assert len(set(source.addresses)) < len(source.addresses) == 30  # some memory was reused
    assert len(kept) == 6
    for record, array in kept:
        expected = np.arange(record, record + array.shape[0], dtype=np.uint8)
        assert (np.asarray(array) == expected[:, None]).all(), record


# States


@check
def the_state_is_that_after_the_last_returned_batch() -> None:
    for remainder in ("keep", "drop", "pad"):
        expected = fed(loader(72, 16, shuffle=True, seed=4), row_mesh(), remainder=remainder)
        for prefetch in range(4):
            for count in range(len(expected) + 1):
                data = loader(72, 16, shuffle=True, seed=4)
                own = iter(data)
                list(islice(own, count))
                with gm.feed(data, row_mesh(), remainder=remainder, prefetch=prefetch) as iterator:
                    list(islice(iterator, count))
                    assert iterator.get_state() == own.get_state()
                assert_equal(
                    fed(own, row_mesh(), remainder=remainder),
                    jax.tree.map(np.asarray, expected[count:]),
                )


@check
def device_put_takes_shardings() -> None:
    rows = NamedSharding(row_mesh(), P("data"))
    ds = trees().to_iter_dataset()
    with iter(gm.experimental.device_put(ds, rows)) as iterator:
        batches = list(iterator)
    assert_equal(batches, host(ds))
    assert all(leaf.sharding == rows for leaf in jax.tree.leaves(batches))


# In this process: the results of the other one


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__))],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CHECKS)
def test_on_eight_devices(name: str, results: dict[str, str]):
    assert results[name] == "passed", results[name]


def main() -> None:
    """Run all checks, and print the result of each."""
    assert len(jax.devices()) == 8
    warnings.filterwarnings("ignore", message="`feed` gets single numbers")
    results: dict[str, str] = {}
    for name, function in CHECKS.items():
        try:
            function()
            results[name] = "passed"
        except BaseException:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
