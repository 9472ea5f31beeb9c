"""Orbax saves iterators, alone and together with a model, and they resume from there."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from orbax.checkpoint.experimental import v1

import gristmill as gm
import gristmill.python
from gristmill import checkpoint
from gristmill.errors import StateError

STATE_FILE = "process_0-of-1.json"


# Sent to workers as it is; for a function with a name they would import this module, and Flax.
TENFOLD: Any = lambda record: record * 10  # noqa: E731


def loader_iterator(worker_count: int | None = 0) -> gm.DataLoaderIterator:
    loader = gm.DataLoader(
        data_source=range(60),
        sampler=gm.IndexSampler(60, shuffle=True, seed=3, num_epochs=1),
        operations=[TENFOLD, gm.Batch(4)],
        worker_count=worker_count,
    )
    return iter(loader)


def map_iterator() -> gm.DatasetIterator[Any]:
    return iter(gm.MapDataset.range(60).seed(5).shuffle().map(lambda x: x + 1).batch(4))


def stream_iterator() -> gm.DatasetIterator[Any]:
    dataset = gm.MapDataset.range(60).seed(5).shuffle().to_iter_dataset()
    shuffled = gm.experimental.WindowShuffleIterDataset(dataset, window_size=7, seed=2)
    return iter(shuffled.filter(lambda x: x % 3 > 0).batch(4))


MAKE: list[Callable[[], Any]] = [loader_iterator, map_iterator, stream_iterator]
EACH_FACE = pytest.mark.parametrize("make", MAKE)


def taken(iterator: Any, count: int | None = None) -> list[list[int]]:
    return [batch.tolist() for batch in islice(iterator, count)]


@pytest.fixture(params=[False, True], ids=["synchronous", "asynchronous"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ocp.CheckpointManager]:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=request.param)
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=options) as made:
        yield made


# Iterators alone


@EACH_FACE
def test_a_restored_iterator_yields_the_exact_rest(make: Any, manager: ocp.CheckpointManager):
    iterator = make()
    head = taken(iterator, 4)
    assert manager.save(4, args=checkpoint.CheckpointSave(iterator))
    rest = taken(iterator)
    manager.wait_until_finished()

    other = make()
    given = manager.restore(4, args=checkpoint.CheckpointRestore(other))

    assert given is other
    assert taken(other) == rest
    assert head + rest == taken(make())


@EACH_FACE
def test_the_place_is_that_of_the_moment_of_saving(make: Any, manager: ocp.CheckpointManager):
    iterator = make()
    taken(iterator, 2)
    manager.save(2, args=checkpoint.CheckpointSave(iterator))
    later = taken(iterator, 3)  # while an asynchronous manager still writes
    manager.wait_until_finished()

    manager.restore(2, args=checkpoint.CheckpointRestore(iterator))

    assert taken(iterator, 3) == later


def test_a_file_is_named_after_its_process_and_holds_the_state(manager: ocp.CheckpointManager):
    iterator = loader_iterator()
    next(iterator)
    manager.save(1, args=checkpoint.CheckpointSave(iterator))
    manager.wait_until_finished()

    files = list(Path(manager.directory).rglob("process_*"))
    assert files == [Path(manager.directory) / "1" / "default" / STATE_FILE]
    assert files[0].read_bytes() == iterator.get_state()


@pytest.mark.parametrize("saved_with", [0, 2])
@pytest.mark.parametrize("restored_with", [0, 3, None])
def test_a_state_restores_with_another_number_of_workers(
    saved_with: int, restored_with: int | None, tmp_path: Path
):
    with ocp.CheckpointManager(tmp_path) as manager:
        with loader_iterator(saved_with) as iterator:
            taken(iterator, 5)
            manager.save(5, args=checkpoint.CheckpointSave(iterator))
            rest = taken(iterator)
        manager.wait_until_finished()
        with loader_iterator(restored_with) as other:
            manager.restore(5, args=checkpoint.CheckpointRestore(other))
            assert taken(other) == rest


@EACH_FACE
def test_an_older_step_restores(make: Any, manager: ocp.CheckpointManager):
    iterator = make()
    for step in range(1, 4):
        next(iterator)
        manager.save(step, args=checkpoint.CheckpointSave(iterator))
    manager.wait_until_finished()

    for step in (1, 3, 2):
        manager.restore(step, args=checkpoint.CheckpointRestore(iterator))
        assert taken(iterator) == taken(make())[step:]


@EACH_FACE
def test_the_beginning_and_the_end_restore(make: Any, manager: ocp.CheckpointManager):
    iterator = make()
    manager.save(0, args=checkpoint.CheckpointSave(iterator))
    whole = taken(iterator)
    manager.save(1, args=checkpoint.CheckpointSave(iterator))
    manager.wait_until_finished()

    manager.restore(0, args=checkpoint.CheckpointRestore(iterator))
    assert taken(iterator) == whole
    manager.restore(1, args=checkpoint.CheckpointRestore(iterator))
    assert taken(iterator) == []


def test_a_state_of_another_pipeline_is_refused_and_changes_nothing(
    manager: ocp.CheckpointManager,
):
    iterator = loader_iterator()
    next(iterator)
    manager.save(1, args=checkpoint.CheckpointSave(iterator))
    manager.wait_until_finished()

    other = iter(gm.load(range(50), num_epochs=1))
    with pytest.raises(StateError, match=r"^The state belongs to another source: range\("):
        manager.restore(1, args=checkpoint.CheckpointRestore(other))
    assert next(other) == 0


class Counting(gm.DatasetIterator[int]):
    """An iterator as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __next__(self) -> int:
        self.count += 1
        return self.count

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_an_iterator_of_the_users_own_is_saved_and_restored(manager: ocp.CheckpointManager):
    iterator = Counting()
    list(islice(iterator, 7))
    manager.save(7, args=checkpoint.CheckpointSave(iterator))
    manager.wait_until_finished()

    given: Any = manager.restore(7, args=checkpoint.CheckpointRestore(Counting()))
    assert next(given) == 8


def test_a_checkpointer_takes_the_handler_by_itself(tmp_path: Path):
    iterator = map_iterator()
    next(iterator)
    for kind in (ocp.Checkpointer, ocp.AsyncCheckpointer):
        with kind(checkpoint.CheckpointHandler()) as checkpointer:
            checkpointer.save(tmp_path / kind.__name__, args=checkpoint.CheckpointSave(iterator))
            if isinstance(checkpointer, ocp.AsyncCheckpointer):
                checkpointer.wait_until_finished()
            other = map_iterator()
            checkpointer.restore(tmp_path / kind.__name__, args=checkpoint.CheckpointRestore(other))
        assert taken(other) == taken(map_iterator())[1:]


def test_a_handler_saves_and_restores_without_a_manager(tmp_path: Path):
    handler = checkpoint.CheckpointHandler()
    iterator = loader_iterator()
    rest = taken(loader_iterator())[2:]
    taken(iterator, 2)

    handler.save(tmp_path, iterator)
    handler.finalize(tmp_path)

    assert taken(handler.restore(tmp_path, loader_iterator())) == rest
    assert handler.metadata(tmp_path) is None
    assert handler.structure(tmp_path) is None
    assert handler.typestr() == "gristmill._checkpoint.orbax.CheckpointHandler"
    handler.close()


# Together with a model


class Model(nnx.Module):
    """A line, and how many records it has seen."""

    def __init__(self) -> None:
        self.line = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
        self.seen = nnx.BatchStat(jnp.zeros((), jnp.int32))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.line(x)


def make_training() -> tuple[Model, nnx.Optimizer[Model]]:
    model = Model()
    return model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)


@nnx.jit
def train_step(model: Model, optimizer: nnx.Optimizer[Model], batch: jax.Array) -> None:
    x = batch[:, None] / 600

    def loss(model: Model) -> jax.Array:
        return jnp.mean((model(x) - 2 * x) ** 2)

    optimizer.update(model, nnx.grad(loss)(model))
    model.seen[...] += len(batch)


def state_of(model: Model, optimizer: nnx.Optimizer[Model]) -> Any:
    return nnx.to_pure_dict(nnx.state((model, optimizer)))


def set_state_of(model: Model, optimizer: nnx.Optimizer[Model], pure: Any) -> None:
    state = nnx.state((model, optimizer))
    nnx.replace_by_pure_dict(state, pure)
    nnx.update((model, optimizer), state)


def assert_same_state(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    assert all(map(np.array_equal, jax.tree.leaves(actual), jax.tree.leaves(expected)))


@EACH_FACE
def test_a_training_goes_on_as_if_nothing_had_been(make: Any, manager: ocp.CheckpointManager):
    training, iterator = make_training(), make()
    for step in range(1, 8):
        train_step(*training, next(iterator))
        if step % 3 == 0:
            manager.save(
                step,
                args=ocp.args.Composite(
                    model=ocp.args.StandardSave(state_of(*training)),
                    data=checkpoint.CheckpointSave(iterator),
                ),
            )
    rest = taken(iterator)
    manager.wait_until_finished()

    again, other = make_training(), make()
    assert manager.latest_step() == 6
    restored: Any = manager.restore(
        6,
        args=ocp.args.Composite(
            model=ocp.args.StandardRestore(state_of(*again)),
            data=checkpoint.CheckpointRestore(other),
        ),
    )
    set_state_of(*again, restored.model)
    assert int(again[0].seen[...]) == 24
    train_step(*again, next(other))

    assert_same_state(state_of(*again), state_of(*training))
    assert restored.data is other
    assert taken(other) == rest


def test_two_iterators_are_saved_side_by_side(manager: ocp.CheckpointManager):
    train, validate = loader_iterator(), map_iterator()
    taken(train, 3)
    taken(validate, 1)
    manager.save(
        3,
        args=ocp.args.Composite(
            train=checkpoint.CheckpointSave(train), validate=checkpoint.CheckpointSave(validate)
        ),
    )
    expected = taken(train), taken(validate)
    manager.wait_until_finished()

    manager.restore(
        3,
        args=ocp.args.Composite(
            train=checkpoint.CheckpointRestore(train),
            validate=checkpoint.CheckpointRestore(validate),
        ),
    )
    assert (taken(train), taken(validate)) == expected


# Iterators that save themselves


@EACH_FACE
def test_orbax_saves_and_loads_an_iterator_by_its_own_methods(make: Any, tmp_path: Path):
    iterator = make()
    taken(iterator, 4)
    model = {"weight": np.arange(3.0)}
    v1.save_checkpointables(str(tmp_path / "one"), {"model": model, "data": iterator})
    expected = taken(iterator)

    other = make()
    loaded = v1.load_checkpointables(str(tmp_path / "one"), {"model": model, "data": other})

    assert loaded["data"] is other
    assert taken(other) == expected
    assert (tmp_path / "one" / "data" / STATE_FILE).is_file()
    assert np.array_equal(loaded["model"]["weight"], model["weight"])


@EACH_FACE
def test_orbax_saves_in_the_background_the_place_of_the_moment(make: Any, tmp_path: Path):
    iterator = make()
    taken(iterator, 2)
    response = v1.save_checkpointables_async(str(tmp_path / "one"), {"data": iterator})
    expected = taken(iterator)  # while it saves
    response.result()

    v1.load_checkpointables(str(tmp_path / "one"), {"data": iterator})

    assert taken(iterator) == expected


@EACH_FACE
def test_what_the_manager_saved_orbax_loads_by_the_iterators_own_methods(
    make: Any, manager: ocp.CheckpointManager
):
    iterator = make()
    taken(iterator, 4)
    manager.save(4, args=ocp.args.Composite(data=checkpoint.CheckpointSave(iterator)))
    expected = taken(iterator)
    manager.wait_until_finished()

    v1.load_checkpointables(str(manager.directory / "4"), {"data": iterator})

    assert taken(iterator) == expected


# Names


@pytest.mark.parametrize("module", [gm, gristmill.python])
@pytest.mark.parametrize("kind", ["Handler", "Save", "Restore"])
def test_all_spellings_are_one_class(module: Any, kind: str):
    here = getattr(checkpoint, f"Checkpoint{kind}")

    assert getattr(module, f"PyGrainCheckpoint{kind}") is here
    assert getattr(module, f"GrainCheckpoint{kind}") is here


@pytest.mark.parametrize("module", [gm, gristmill.python, checkpoint])
def test_a_name_that_is_not_there_is_reported_as_python_reports_it(module: Any):
    with pytest.raises(
        AttributeError, match=f"^module '{module.__name__}' has no attribute 'CheckpointSaver'$"
    ):
        module.CheckpointSaver  # noqa: B018 - it raises


WITHOUT_ORBAX = """
import sys
sys.modules["orbax"] = None  # as if it were not installed
import gristmill, gristmill.python
from gristmill import *
try:
    {statement}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "statement",
    [
        "from gristmill.checkpoint import CheckpointSave",
        "gristmill.python.PyGrainCheckpointRestore",
        "gristmill.GrainCheckpointHandler",
    ],
)
def test_without_orbax_everything_else_works_and_the_error_reports_what_to_install(statement: str):
    program = WITHOUT_ORBAX.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == (
        "Saving iterators with Orbax needs the package 'orbax.checkpoint'. Install it with "
        '`pip install "gristmill[orbax]"`.\n'
    )


def test_the_extra_of_the_error_is_one_of_ours():
    extras = importlib.metadata.metadata("gristmill").get_all("Provides-Extra") or []
    assert "orbax" in extras
