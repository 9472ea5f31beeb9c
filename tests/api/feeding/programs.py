"""The program that each process of `test_processes.py` runs: one scenario after another.

Run as `python programs.py INDEX COUNT PORT FOLDER TASK`.
"""

import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax._src import distributed
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import gristmill as gm
from gristmill.errors import FeedError


def mesh_of_all() -> Mesh:
    return Mesh(np.array(jax.devices()), ("data",))


@jax.jit
def total(batch: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum over the rows of all processes, which have to take this step together."""
    return (batch * mask).sum()


def rows_here(array: jax.Array) -> list[int]:
    """Return the rows that this process holds, each once."""
    parts = {str(shard.index): shard.data for shard in array.addressable_shards}
    return [int(row) for _, part in sorted(parts.items()) for row in np.asarray(part)]


def walk(batches: Iterator[Any], limit: int | None = None) -> dict[str, Any]:
    """Train on batches, and return the global sums, the records of this process, and the error."""
    results: dict[str, Any] = {"totals": [], "records": [], "shapes": [], "error": None}
    try:
        while limit is None or len(results["totals"]) < limit:
            batch = next(batches, None)
            if batch is None:
                break
            data, mask = batch if isinstance(batch, tuple) else (batch, None)
            is_row = np.ones(len(rows_here(data))) if mask is None else rows_here(mask)
            every = jax.numpy.ones_like(data) if mask is None else mask
            results["totals"].append(int(total(data, every)))
            results["shapes"].append(list(data.shape))
            results["records"] += np.array(rows_here(data), int)[np.array(is_row, bool)].tolist()
    except (FeedError, ArithmeticError) as error:
        results["error"] = f"{type(error).__name__}: {error}"
    return results


def walked(data: Any, **options: Any) -> dict[str, Any]:
    with gm.feed(data, mesh_of_all(), P("data"), **options) as batches:
        return walk(batches)


def counted(data: Any, limit: int = 100) -> dict[str, Any]:
    """Take batches without computing on them, which would need all processes in each step."""
    results: dict[str, Any] = {"taken": 0, "error": None}
    with gm.feed(data, mesh_of_all(), P("data")) as batches:
        try:
            for _ in zip(range(limit), batches, strict=False):
                results["taken"] += 1
        except FeedError as error:
            results["error"] = str(error)
    return results


def records(first: int, count: int, size: int) -> Any:
    return gm.MapDataset.source(np.arange(first, first + count)).batch(size)


def own(counts: list[int], size: int = 2) -> Any:
    """Return the records of this process, which no other process has."""
    me = jax.process_index()
    return records(100 * (me + 1), counts[me % len(counts)], size)


def loader(**options: Any) -> gm.DataLoader:
    sampler = gm.IndexSampler(48, shuffle=True, seed=3, num_epochs=1)
    arguments: dict[str, Any] = {
        "data_source": range(48),
        "sampler": sampler,
        "operations": [gm.Batch(4)],
        "shard_options": gm.ShardByJaxProcess(),
    }
    return gm.DataLoader(**(arguments | options))


def shards_in_loader() -> Any:
    return walked(loader())


def shards_in_sampler() -> Any:
    shards = gm.ShardByJaxProcess()
    sampler = gm.IndexSampler(48, shard_options=shards, shuffle=True, seed=3, num_epochs=1)
    return walked(loader(sampler=sampler, shard_options=None))


def unequal() -> Any:
    counts = [13, 9, 0, 5]
    return {remainder: walked(own(counts), remainder=remainder) for remainder in ("drop", "pad")}


def one_has_none() -> Any:
    return {remainder: walked(own([0, 5]), remainder=remainder) for remainder in ("drop", "pad")}


def unknown_lengths() -> Any:
    """The records that pass a filter are only known after reading them."""
    me = jax.process_index()
    numbers = gm.MapDataset.range(40).filter(lambda number: number % (2 + me) == 0)
    mine = numbers.map(lambda number: 100 * (me + 1) + number).to_iter_dataset().batch(2)
    return {
        remainder: walked(mine, remainder=remainder, prefetch=0) for remainder in ("drop", "pad")
    }


def kept_and_equal() -> Any:
    return walked(own([6], size=4))


def kept_and_unequal() -> Any:
    return walked(own([12, 8, 12, 12]))


def one_raises() -> Any:
    """In the first process, then in another; then all continue together."""
    me = jax.process_index()

    def check(number: np.int64) -> np.int64:
        if number % 100 == 7:
            raise ZeroDivisionError("seven is not allowed")
        return number

    results = []
    for bad in (0, 1):
        data = gm.MapDataset.source(np.arange(100 * (me + 1), 100 * (me + 1) + 12))
        data = data.map(check).batch(2) if me == bad else data.batch(2)
        results.append(walked(data, remainder="pad"))
    return [*results, walked(own([4]))]


def one_does_not_fit() -> Any:
    """An integer of one process is loaded, but does not fit into 32 bits."""
    numbers = 100 * (jax.process_index() + 1) + np.arange(12)
    if jax.process_index() == 1:
        numbers[7] = 2**40
    return counted(gm.MapDataset.source(numbers).batch(2))


def one_is_slow() -> Any:
    """The verdict of each process on a run in which the first one reads slowly."""

    def read(number: int) -> int:
        time.sleep(0.02)
        return number

    numbers = gm.MapDataset.range(24).filter(lambda number: number >= 0)
    data = (numbers.map(read) if jax.process_index() == 0 else numbers).to_iter_dataset(
        gm.ReadOptions(num_threads=0)
    )
    with gm.feed(data.batch(2), mesh_of_all(), P("data")) as batches:
        list(batches)
        bottleneck = batches.explain().bottleneck
    assert bottleneck is not None
    return [bottleneck.kind, bottleneck.step]


def one_closes() -> Any:
    """The first process, then another; the others continue as far as they can."""
    me = jax.process_index()
    results = [counted(own([40]), limit=3 if me == leaving else 20) for leaving in (0, 1)]
    return [*results, walked(own([4]))]


def all_stop_early() -> Any:
    results = []
    for limit in (3, 1):
        with gm.feed(own([40]), mesh_of_all(), P("data")) as batches:
            results.append(walk(batches, limit))
    return results


def interleaved() -> Any:
    """Train, evaluate in between, and return to an earlier state once."""
    train = gm.feed(own([40]), mesh_of_all(), P("data"))
    results = {"train": walk(train, 4)}
    saved = train.get_state()
    evaluation = gm.feed(own([9, 5, 6, 8]), mesh_of_all(), P("data"), remainder="pad")
    results["evaluation"] = walk(evaluation, 1)
    results["next"] = walk(train, 3)
    results["evaluation_rest"] = walk(evaluation)
    train.set_state(saved)
    results["again"] = walk(train, 3)
    results["rest"] = walk(train)
    evaluation.close()
    train.close()
    return results


def only_here() -> Any:
    """Feeds to local devices need no agreement, nor the same number of batches."""
    me = jax.process_index()
    with gm.feed(own([2, 6, 8, 4]), Mesh(np.array(jax.local_devices()), "data")) as batches:
        return {"count": len([rows_here(batch) for batch in batches]), "process": me}


def model_axis_within() -> Any:
    """Rows are sharded over processes, and replicated on the devices of a process."""
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    with gm.feed(loader(), Mesh(devices, ("data", "model")), P("data")) as batches:
        return walk(batches)


def model_axis_across() -> Any:
    """Each process has all rows on its devices, and feeds all of them."""
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1).T
    everything = loader(shard_options=gm.NoSharding())
    with gm.feed(everything, Mesh(devices, ("data", "model")), P("data")) as batches:
        return walk(batches)


def replicas_in_pairs() -> Any:
    """Processes 0 and 1 have the same rows, and so have 2 and 3."""
    devices = np.array(jax.devices()).reshape(2, 2)
    shards = gm.ShardOptions(shard_index=jax.process_index() // 2, shard_count=2)
    data = loader(shard_options=shards)
    with gm.feed(data, Mesh(devices, ("data", "model")), P("data")) as batches:
        return walk(batches)


def by_mesh() -> Any:
    """Shard by meshes in which the model axis lies within and across processes."""
    devices, count = np.array(jax.devices()), jax.process_count()
    results: dict[str, Any] = {}
    meshes = {
        "data": Mesh(devices, ("data",)),
        "across": Mesh(devices.reshape(count, -1).T, ("data", "model")),
        "half": Mesh(devices.reshape(2, -1), ("data", "model")),
    }
    for name, mesh in meshes.items():
        data = loader(shard_options=gm.ShardByMesh(mesh, "data"))
        with gm.feed(data, mesh, P("data")) as batches:
            results[name] = walk(batches)
    shard = gm.ShardByMesh(meshes["data"], "data", processes=[0])
    data = loader(shard_options=shard)
    results["endless"] = gm.IndexSampler(48, shard).num_positions(shard) > 0
    with gm.feed(data, meshes["data"], P("data"), remainder="pad") as batches:
        results["subset"] = walk(batches)
    return results


def own_buckets() -> Any:
    """Feed buckets that each process fills by itself, so that their shapes differ."""
    me = jax.process_index()
    lengths = [3] * 8 if me else [9] * 8
    data = gm.MapDataset.source([np.full(length, 1) for length in lengths])
    stream = data.to_iter_dataset().bucket_by_length([5, 10], batch_sizes=2)
    return walked(stream)


def buckets() -> Any:
    """Feed planned buckets: the processes take consecutive batches of one bucket."""
    count, me = jax.process_count(), jax.process_index()
    lengths = np.random.default_rng(0).integers(1, 31, 200)
    data = gm.MapDataset.range(200)
    data = data.map(lambda number: {"x": np.full(lengths[number], number + 1)})
    planned = data.shuffle(seed=1).bucket_by_length(
        [10, 20, 30],
        lengths=lengths,
        batch_sizes=[8, 4, 2],
        length="x",
        remainder="pad",
        pad=gm.transforms.PadBatch(add_lengths=True),
        group_size=count,
    )
    sums: list[int] = []
    with gm.feed(planned[me::count], mesh_of_all(), P("data")) as batches:
        results: dict[str, Any] = {"shapes": [], "totals": []}
        for batch in batches:
            results["shapes"].append(list(batch["x"].shape))
            results["totals"].append(int(jax.jit(jax.numpy.sum)(batch["x"])))
            rows = {str(one.index): np.asarray(one.data) for one in batch["x"].addressable_shards}
            sums += [int(row.max()) for rows_of_one in rows.values() for row in rows_of_one]
    return {**results, "records": [number - 1 for number in sums if number]}


def unsharded() -> Any:
    """Feed loaders that are not sharded, and count the warnings."""
    counts = []
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    replicated = Mesh(devices.T, ("data", "model"))
    everything = gm.NoSharding()
    feeds = [
        lambda: gm.feed(loader(), mesh_of_all(), P("data")),
        lambda: gm.feed(loader(shard_options=everything), replicated, P("data")),
        lambda: gm.feed(loader(shard_options=everything), mesh_of_all(), P("data")),
        lambda: gm.feed(loader(shard_options=everything), mesh_of_all(), P("data")),
    ]
    for make in feeds:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make().close()
        counts.append([str(one.message) for one in caught])
    return counts


def pairs_then_all() -> Any:
    """Two processes feed among themselves, twice; then all feed together."""
    me = jax.process_index()
    pair = (0, 1) if me < 2 else (2, 3)
    mesh = Mesh(np.array([one for one in jax.devices() if one.process_index in pair]), ("data",))
    results = []
    for _ in range(2 if me < 2 else 1):
        with gm.feed(own([5, 3, 2, 7]), mesh, P("data"), remainder="pad") as batches:
            results.append(walk(batches))
    return {"pair": results, "all": walked(own([4]))}


def saved_and_restored(folder: Path) -> Any:
    batches, again = (gm.feed(loader(), mesh_of_all(), P("data")) for _ in range(2))
    results = {"before": walk(batches, 2)}
    with ocp.CheckpointManager(folder / "checkpoints") as manager:
        manager.save(2, args=ocp.args.Composite(data=gm.PyGrainCheckpointSave(batches)))
        manager.wait_until_finished()
        results["rest"] = walk(batches)
        arguments = ocp.args.Composite(data=gm.PyGrainCheckpointRestore(again))
        manager.restore(2, args=arguments)
    results["restored"] = walk(again)
    batches.close()
    again.close()
    return results


def restored(folder: Path) -> Any:
    batches = gm.feed(loader(), mesh_of_all(), P("data"))
    with ocp.CheckpointManager(folder / "checkpoints") as manager:
        manager.restore(2, args=ocp.args.Composite(data=gm.PyGrainCheckpointRestore(batches)))
    with batches:
        return walk(batches)


def in_a_worker() -> Any:
    def inspect(number: int) -> Any:
        import jax  # noqa: PLC0415

        jax.numpy.zeros(1).block_until_ready()
        platforms = {device.platform for device in jax.devices()}
        return np.array([number, jax.process_count(), jax.process_index(), platforms == {"cpu"}])

    data = loader(operations=[gm.MapOperation(inspect), gm.Batch(4)], worker_count=1)
    with gm.feed(data, mesh_of_all(), P("data")) as batches:
        seen = [shard.data for batch in batches for shard in batch.addressable_shards]
    return np.concatenate(seen).tolist()


def keys() -> list[str]:
    client: Any = distributed.global_state.client
    return [key for key, _ in client.key_value_dir_get_bytes("gristmill/")]


left_open: list[gm.FeedIterator] = []


def never_closed() -> Any:
    """End the program with one feed open, and one that waits for the first process forever."""
    left_open.append(gm.feed(own([40]), mesh_of_all(), P("data")))
    results = walk(left_open[0], 2)
    if jax.process_index() > 0:
        left_open.append(gm.feed(own([40]), mesh_of_all(), P("data")))
        left_open[1].start_prefetch()
    return results


def many_steps() -> Any:
    """Take many small steps, and count the keys in the store."""
    max_keys = 0
    with gm.feed(own([600]), mesh_of_all(), P("data")) as batches:
        for number, _ in enumerate(batches):
            if number % 50 == 0:
                max_keys = max(max_keys, len(keys()))
    gc.collect()
    walked(own([2]))  # at its start the first process deletes the old keys
    return {"keys": max_keys, "keys_after": len(keys())}


TASKS: dict[str, list[Callable[..., Any]]] = {
    "two": [
        unsharded,
        by_mesh,
        own_buckets,
        buckets,
        shards_in_loader,
        shards_in_sampler,
        unequal,
        one_has_none,
        unknown_lengths,
        kept_and_equal,
        kept_and_unequal,
        one_raises,
        one_does_not_fit,
        one_is_slow,
        one_closes,
        all_stop_early,
        interleaved,
        only_here,
        model_axis_within,
        model_axis_across,
        saved_and_restored,
        in_a_worker,
        many_steps,
        never_closed,
    ],
    "four": [
        unsharded,
        by_mesh,
        own_buckets,
        buckets,
        shards_in_loader,
        unequal,
        kept_and_unequal,
        one_raises,
        one_is_slow,
        one_closes,
        interleaved,
        replicas_in_pairs,
        pairs_then_all,
        many_steps,
        never_closed,
    ],
    "restore": [restored],
}


def main(index: int, count: int, port: int, folder: Path, task: str) -> None:
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, index)
    results = {}
    for scenario in TASKS[task]:
        wants_folder = scenario in (saved_and_restored, restored)
        results[scenario.__name__] = scenario(folder) if wants_folder else scenario()
        sys.stdout.write(f"{scenario.__name__} is done\n")
        sys.stdout.flush()
    (folder / f"{task}-{index}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    _, *numbers, path, name = sys.argv
    index, count, port = map(int, numbers)
    main(index, count, port, Path(path), name)
