"""What the processes of `test_processes.py` run: one scenario after the other, in each of them.

Run as `python programs.py INDEX COUNT PORT FOLDER TASK`.
"""

import gc
import json
import sys
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
    """Sum over the rows of all processes, who have to take this step together."""
    return (batch * mask).sum()


def rows_here(array: jax.Array) -> list[int]:
    """Give the rows that this process holds, each once."""
    parts = {str(shard.index): shard.data for shard in array.addressable_shards}
    return [int(row) for _, part in sorted(parts.items()) for row in np.asarray(part)]


def walk(batches: Iterator[Any], most: int | None = None) -> dict[str, Any]:
    """Train on batches: give what all of them saw, what was here, and how it ended."""
    said: dict[str, Any] = {"totals": [], "records": [], "shapes": [], "error": None}
    try:
        while most is None or len(said["totals"]) < most:
            batch = next(batches, None)
            if batch is None:
                break
            data, mask = batch if isinstance(batch, tuple) else (batch, None)
            is_row = np.ones(len(rows_here(data))) if mask is None else rows_here(mask)
            every = jax.numpy.ones_like(data) if mask is None else mask
            said["totals"].append(int(total(data, every)))
            said["shapes"].append(list(data.shape))
            said["records"] += np.array(rows_here(data), int)[np.array(is_row, bool)].tolist()
    except (FeedError, ArithmeticError) as error:
        said["error"] = f"{type(error).__name__}: {error}"
    return said


def walked(data: Any, **options: Any) -> dict[str, Any]:
    with gm.feed(data, mesh_of_all(), P("data"), **options) as batches:
        return walk(batches)


def counted(data: Any, most: int = 100) -> dict[str, Any]:
    """Take batches without computing on them, which would need all processes in each step."""
    said: dict[str, Any] = {"taken": 0, "error": None}
    with gm.feed(data, mesh_of_all(), P("data")) as batches:
        try:
            for _ in zip(range(most), batches, strict=False):
                said["taken"] += 1
        except FeedError as error:
            said["error"] = str(error)
    return said


def records(first: int, count: int, size: int) -> Any:
    return gm.MapDataset.source(np.arange(first, first + count)).batch(size)


def own(counts: list[int], size: int = 2) -> Any:
    """Give as many records as are this process's, none that another has."""
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
    return {last: walked(own(counts), last=last) for last in ("drop", "pad")}


def one_has_none() -> Any:
    return {last: walked(own([0, 5]), last=last) for last in ("drop", "pad")}


def nobody_knows_how_many() -> Any:
    """Which records pass the filter is only seen when they are read."""
    me = jax.process_index()
    numbers = gm.MapDataset.range(40).filter(lambda number: number % (2 + me) == 0)
    mine = numbers.map(lambda number: 100 * (me + 1) + number).to_iter_dataset().batch(2)
    return {last: walked(mine, last=last, ahead=0) for last in ("drop", "pad")}


def kept_and_equal() -> Any:
    return walked(own([6], size=4))


def kept_and_unequal() -> Any:
    return walked(own([12, 8, 12, 12]))


def one_raises() -> Any:
    """In the first process, then in another; then all go on together."""
    me = jax.process_index()

    def check(number: np.int64) -> np.int64:
        if number % 100 == 7:
            raise ZeroDivisionError("nobody expects a seven")
        return number

    said = []
    for bad in (0, 1):
        data = gm.MapDataset.source(np.arange(100 * (me + 1), 100 * (me + 1) + 12))
        data = data.map(check).batch(2) if me == bad else data.batch(2)
        said.append(walked(data, last="pad"))
    return [*said, walked(own([4]))]


def one_cannot_be_held() -> Any:
    """A number of one process does not fit: it was loaded, but cannot go to the devices."""
    numbers = 100 * (jax.process_index() + 1) + np.arange(12)
    if jax.process_index() == 1:
        numbers[7] = 2**40
    return counted(gm.MapDataset.source(numbers).batch(2))


def one_closes() -> Any:
    """The first process, then another; the others go on without it, as far as they can."""
    me = jax.process_index()
    said = [counted(own([40]), most=3 if me == leaving else 20) for leaving in (0, 1)]
    return [*said, walked(own([4]))]


def all_break_off() -> Any:
    said = []
    for most in (3, 1):
        with gm.feed(own([40]), mesh_of_all(), P("data")) as batches:
            said.append(walk(batches, most))
    return said


def interleaved() -> Any:
    """Train, look at other data now and then, and go back once."""
    train = gm.feed(own([40]), mesh_of_all(), P("data"))
    said = {"train": walk(train, 4)}
    saved = train.get_state()
    evaluation = gm.feed(own([9, 5, 6, 8]), mesh_of_all(), P("data"), last="pad")
    said["evaluation"] = walk(evaluation, 1)
    said["next"] = walk(train, 3)
    said["evaluation_rest"] = walk(evaluation)
    train.set_state(saved)
    said["again"] = walk(train, 3)
    said["rest"] = walk(train)
    evaluation.close()
    train.close()
    return said


def only_here() -> Any:
    """What goes to devices of this process needs nobody: not even as many batches."""
    me = jax.process_index()
    with gm.feed(own([2, 6, 8, 4]), Mesh(np.array(jax.local_devices()), "data")) as batches:
        return {"count": len([rows_here(batch) for batch in batches]), "process": me}


def model_axis_within() -> Any:
    """Rows are shared out among the processes, each part is on all devices of one."""
    devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
    with gm.feed(loader(), Mesh(devices, ("data", "model")), P("data")) as batches:
        return walk(batches)


def model_axis_across() -> Any:
    """Each process has all the rows on its devices, and gives all of them."""
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


def some_more_than_others() -> Any:
    """Two feed among themselves, twice; then all feed together."""
    me = jax.process_index()
    pair = (0, 1) if me < 2 else (2, 3)
    mesh = Mesh(np.array([one for one in jax.devices() if one.process_index in pair]), ("data",))
    said = []
    for _ in range(2 if me < 2 else 1):
        with gm.feed(own([5, 3, 2, 7]), mesh, P("data"), last="pad") as batches:
            said.append(walk(batches))
    return {"pair": said, "all": walked(own([4]))}


def saved_and_restored(folder: Path) -> Any:
    batches, again = (gm.feed(loader(), mesh_of_all(), P("data")) for _ in range(2))
    said = {"before": walk(batches, 2)}
    with ocp.CheckpointManager(folder / "checkpoints") as manager:
        manager.save(2, args=ocp.args.Composite(data=gm.PyGrainCheckpointSave(batches)))
        manager.wait_until_finished()
        said["rest"] = walk(batches)
        arguments = ocp.args.Composite(data=gm.PyGrainCheckpointRestore(again))
        manager.restore(2, args=arguments)
    said["restored"] = walk(again)
    batches.close()
    again.close()
    return said


def restored(folder: Path) -> Any:
    batches = gm.feed(loader(), mesh_of_all(), P("data"))
    with ocp.CheckpointManager(folder / "checkpoints") as manager:
        manager.restore(2, args=ocp.args.Composite(data=gm.PyGrainCheckpointRestore(batches)))
    with batches:
        return walk(batches)


def in_a_worker() -> Any:
    def look(number: int) -> Any:
        import jax  # noqa: PLC0415

        jax.numpy.zeros(1).block_until_ready()
        platforms = {device.platform for device in jax.devices()}
        return np.array([number, jax.process_count(), jax.process_index(), platforms == {"cpu"}])

    data = loader(operations=[gm.MapOperation(look), gm.Batch(4)], worker_count=1)
    with gm.feed(data, mesh_of_all(), P("data")) as batches:
        seen = [shard.data for batch in batches for shard in batch.addressable_shards]
    return np.concatenate(seen).tolist()


def keys() -> list[str]:
    client: Any = distributed.global_state.client
    return [key for key, _ in client.key_value_dir_get_bytes("gristmill/")]


left_open: list[gm.FeedIterator] = []


def never_closed() -> Any:
    """Leave a feeding as it is when the program ends, and one that waits in vain for the first."""
    left_open.append(gm.feed(own([40]), mesh_of_all(), P("data")))
    said = walk(left_open[0], 2)
    if jax.process_index() > 0:
        left_open.append(gm.feed(own([40]), mesh_of_all(), P("data")))
        left_open[1].start_prefetch()
    return said


def many_steps() -> Any:
    """Feed nothing much, often, and see what is left in the store."""
    most = 0
    with gm.feed(own([600]), mesh_of_all(), P("data")) as batches:
        for number, _ in enumerate(batches):
            if number % 50 == 0:
                most = max(most, len(keys()))
    gc.collect()
    walked(own([2]))  # the first of them clears what was left, as it begins
    return {"keys": most, "keys_after": len(keys())}


TASKS: dict[str, list[Callable[..., Any]]] = {
    "two": [
        shards_in_loader,
        shards_in_sampler,
        unequal,
        one_has_none,
        nobody_knows_how_many,
        kept_and_equal,
        kept_and_unequal,
        one_raises,
        one_cannot_be_held,
        one_closes,
        all_break_off,
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
        shards_in_loader,
        unequal,
        kept_and_unequal,
        one_raises,
        one_closes,
        interleaved,
        replicas_in_pairs,
        some_more_than_others,
        many_steps,
        never_closed,
    ],
    "restore": [restored],
}


def main(index: int, count: int, port: int, folder: Path, task: str) -> None:
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, index)
    said = {}
    for scenario in TASKS[task]:
        wants_folder = scenario in (saved_and_restored, restored)
        said[scenario.__name__] = scenario(folder) if wants_folder else scenario()
        sys.stdout.write(f"{scenario.__name__} is done\n")
        sys.stdout.flush()
    (folder / f"{task}-{index}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    _, *numbers, path, name = sys.argv
    index, count, port = map(int, numbers)
    main(index, count, port, Path(path), name)
