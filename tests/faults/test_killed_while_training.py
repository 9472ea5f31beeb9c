"""A training that saves with Orbax is killed again and again, also while it saves.

What it replays is what it did before, and in the end each record was trained on once, in order.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tests.faults.processes import gone, until
from tests.faults.scripts import Script

NUM_STEPS = 24
SAVES_EVERY = 2
END = 1000
"""More steps than there are: a run that is not killed."""

TRAIN = r"""
import hashlib, json, os, re, sys, threading

import jax, jax.numpy as jnp, numpy as np, optax
import orbax.checkpoint as ocp
from flax import nnx

import gristmill.python as grain


class Model(nnx.Module):
    def __init__(self):
        self.hidden = nnx.Linear(1, 4, rngs=nnx.Rngs(0))
        self.out = nnx.Linear(4, 1, rngs=nnx.Rngs(1))
        self.seen = nnx.BatchStat(jnp.zeros((), jnp.int32))


def make():
    model = Model()
    return model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)


@nnx.jit
def train_step(model, optimizer, batch):
    def loss(model):
        return jnp.mean((model.out(jax.nn.relu(model.hidden(batch["x"]))) - batch["y"]) ** 2)

    optimizer.update(model, nnx.grad(loss)(model))
    model.seen[...] += len(batch["x"])


class Prepare(grain.RandomMapTransform):
    def random_map(self, record, rng):
        x = np.float32([record / 96])
        return {"record": record, "x": x, "y": x * 2 + np.float32(rng.normal(0, 0.01))}


def say(line):
    os.write(1, f"{line}\n".encode())  # in one piece, whatever thread it is


def stop_at(moment):
    event, _, pattern = moment.partition(" ")

    def hook(name, arguments):
        if name == event and re.search(pattern, " ".join(map(str, arguments))):
            say("at the moment")
            threading.Event().wait()  # until it is killed

    sys.addaudithook(hook)


def digest(training):
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(training)))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


loader = grain.DataLoader(
    data_source=range(96),
    sampler=grain.IndexSampler(96, shuffle=True, seed=7, num_epochs=1),
    operations=[Prepare(), grain.Batch(4)],
    worker_count=int(os.environ["WORKERS"]),
)
train_step(*make(), next(iter(loader)))  # compiled before it counts
say("ready")
input()

training, iterator = make(), iter(loader)
is_async = os.environ["ASYNC"] == "1"
options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=is_async)
manager = ocp.CheckpointManager(os.environ["FOLDER"], options=options)
step = manager.latest_step() or 0
if step:
    state = nnx.state(training)
    restored = manager.restore(
        step,
        args=ocp.args.Composite(
            model=ocp.args.StandardRestore(nnx.to_pure_dict(state)),
            data=grain.PyGrainCheckpointRestore(iterator),
        ),
    )
    nnx.replace_by_pure_dict(state, restored.model)
    nnx.update(training, state)
say(json.dumps([step, int(training[0].seen[...]), digest(training)]))
if moment := os.environ["MOMENT"]:
    stop_at(moment)
for batch in iterator:
    train_step(*training, batch)
    step += 1
    say(json.dumps([step, batch["record"].tolist(), digest(training)]))
    if step % 2 == 0:
        manager.save(
            step,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(nnx.to_pure_dict(nnx.state(training))),
                data=grain.PyGrainCheckpointSave(iterator),
            ),
        )
manager.close()
say("end")
"""


class Step(NamedTuple):
    """What a training prints after a step."""

    number: int
    records: list[int]
    model: str


class Start(NamedTuple):
    """What a training prints before its first step."""

    step: int
    num_seen: int
    model: str


def steps_of(run: Script, last_line: str = "end") -> Iterator[Step]:
    """Yield the steps of a training until it ends, or prints that this is the moment to kill it."""
    while (line := run.read_line()) != last_line:
        yield Step(*json.loads(line))


def steps_in(out: str) -> list[Step]:
    """Return the steps that are reported in what a training has printed."""
    return [Step(*json.loads(line)) for line in out.splitlines() if line.startswith("[")]


CHANCE = random.Random(11)
# Calls of the system while it saves, by the names of Python's audit events.
SAVING = [
    r"os.mkdir /\d+\.orbax-checkpoint-tmp",
    r"open process_0-of-1\.json",
    r"os.rename process_0-of-1\.json",
    r"os.rename /\d+\.orbax-checkpoint-tmp",
]
# After how many steps, or at which of those calls.
MOMENTS: list[int | str] = [
    0,
    SAVES_EVERY,  # it is about to save
    *SAVING,
    *(CHANCE.randrange(1, 3 * SAVES_EVERY) for _ in range(3)),
    END,
]


def test_a_training_that_is_killed_again_and_again_is_the_one_that_is_not(
    script: Callable[..., Script], tmp_path: Path
):
    def prepare(folder: Path, moment: int | str, number: int = 0) -> Script:
        environment = {
            "FOLDER": str(folder),
            "WORKERS": str(number % 3),
            "ASYNC": str(number % 2),
            "MOMENT": moment if isinstance(moment, str) else "",
            # What one has compiled the next need not: that is most of its time.
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        return script(TRAIN, name=f"{folder.name}_{number}.py", env=environment)

    def begin(run: Script) -> Start:
        run.wait_for("ready")
        run.tell("go")
        return Start(*json.loads(run.read_line()))

    undisturbed = prepare(tmp_path / "undisturbed", END)
    folder = tmp_path / "checkpoints"
    waiting = prepare(folder, MOMENTS[0])  # one is made ready while another trains
    models = [begin(undisturbed).model]
    expected = list(steps_of(undisturbed))
    models += [step.model for step in expected]
    assert [step.number for step in expected] == list(range(1, NUM_STEPS + 1))
    assert sorted(chain(*(step.records for step in expected))) == list(range(4 * NUM_STEPS))

    committed: list[Step] = []
    for number, moment in enumerate(MOMENTS):
        run = waiting
        if moment != END:
            waiting = prepare(folder, MOMENTS[number + 1], number + 1)
        last = last_whole(folder)

        # It resumes from the last whole checkpoint; the model is of the same step as the data.
        assert begin(run) == Start(last, 4 * last, models[last])
        if isinstance(moment, int):
            seen = list(islice(steps_of(run), moment))
        else:
            seen = list(steps_of(run, "at the moment"))
        if moment != END:
            run.look()
            run.kill()
            until(gone(run.family), "its workers are gone")
            seen += steps_in(run.finish().out)  # it may have come further than we have read

        assert seen == expected[last : last + len(seen)]  # replayed, it is what came before
        committed[last:] = seen
    assert committed == expected


def last_whole(folder: Path) -> int:
    """Return the step of the last checkpoint that has its name, 0 if there is none."""
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=0)
