"""Save and restore an iterator with Orbax, which imports Grain itself, and print what follows."""

import json
import tempfile
from typing import Any

import grain
import grain.python as older
import jax
import orbax.checkpoint as typed_ocp
from orbax.checkpoint.experimental.emergency.p2p import local

ocp: Any = typed_ocp
any_grain: Any = grain  # takes sources that its types do not


def make_iterators() -> dict[str, Any]:
    dataset = grain.MapDataset.range(20).shuffle(seed=0).batch(2)
    loader = any_grain.load(range(20), num_epochs=1, batch_size=2)
    return {"dataset": iter(dataset), "loader": iter(loader)}


def elements(iterator: Any) -> list[Any]:
    return [batch.tolist() for batch in iterator]


if __name__ == "__main__":
    found: dict[str, Any] = {"mixin": issubclass(local.LocalPyGrainRestore, object)}
    for name, iterator in make_iterators().items():
        for _ in range(3):
            next(iterator)
        with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder) as manager:
            save = {
                "weights": ocp.args.StandardSave({"w": jax.numpy.arange(3)}),
                "data": older.PyGrainCheckpointSave(iterator),
            }
            manager.save(0, args=ocp.args.Composite(**save))
            manager.wait_until_finished()
            rest = elements(iterator)
            restored = make_iterators()[name]
            manager.restore(
                0, args=ocp.args.Composite(data=older.PyGrainCheckpointRestore(restored))
            )
            found[name] = elements(restored) == rest and len(rest) == 7
    print(json.dumps(found))
