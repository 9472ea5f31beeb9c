"""Train an image classifier with Flax NNX and optax on all devices, with resumable data.

With `--checkpoints` you can stop it at any time, even with `kill -9`. The same command resumes from
the last checkpoint, and every loss is bit for bit the loss of an uninterrupted run.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import gristmill as grain
from gristmill.demo import MnistError, load_mnist

EPILOG = """\
examples:
  python examples/train_nnx.py                              the sample that comes with gristmill
  python examples/train_nnx.py --checkpoints DIR            run it again to resume
  python examples/train_nnx.py --data MNIST --workers 2     MNIST's files, read by two workers
  XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/train_nnx.py
"""


class Shift(grain.RandomMap):
    """Shifts an image by up to two pixels in each direction, differently in each epoch."""

    def random_map(self, record, rng):
        """Return the record with its image shifted. `rng` depends only on seed and position."""
        down, right = rng.integers(0, 5, size=2)
        canvas = np.zeros((32, 32), np.uint8)
        canvas[2:30, 2:30] = record["image"]
        return {**record, "image": canvas[down : down + 28, right : right + 28]}


class Classifier(nnx.Module):
    """Two convolutions and two dense layers, for images of 28 by 28 pixels."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 16, (3, 3), strides=2, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.hidden = nnx.Linear(7 * 7 * 32, 128, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.out = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images):
        """Return the logits of a batch of images."""
        x = images[..., None] / 255  # images are transferred as bytes, a quarter of the size
        x = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
        x = nnx.relu(self.hidden(x.reshape(len(x), -1)))
        return self.out(self.dropout(x))


def make_training(seed):
    """Return a new model and its optimizer."""
    model = Classifier(nnx.Rngs(seed))
    return model, nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)


@nnx.jit
def train_step(model, optimizer, batch):
    """Take a training step and return the mean loss over the rows that are not padding."""

    def loss_of(model):
        losses = optax.softmax_cross_entropy_with_integer_labels(
            model(batch["image"]), batch["label"]
        )
        return jnp.mean(losses, where=batch["mask"])

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_correct(model, batch):
    """Return the number of images that the model classifies correctly, and of all images."""
    is_right = model(batch["image"]).argmax(axis=-1) == batch["label"]
    return jnp.sum(is_right, where=batch["mask"]), jnp.sum(batch["mask"])


def make_loader(images, labels, arguments, *, epochs=1, shuffle=False, transforms=()):
    """Return a loader of this process's shard of some images, in batches."""
    return grain.DataLoader(
        data_source=grain.ArraySource({"image": images, "label": labels}),
        sampler=grain.IndexSampler(
            len(images),
            shard_options=grain.ShardByJaxProcess(),
            shuffle=shuffle,
            num_epochs=epochs,
            seed=arguments.seed,
        ),
        operations=[*transforms, grain.Batch(arguments.batch_size // jax.process_count())],
        worker_count=arguments.workers,
    )


def save(checkpoints, step, training, batches):
    """Save model, optimizer, random state and the position in the data as one checkpoint."""
    checkpoints.save(
        step,
        args=ocp.args.Composite(
            training=ocp.args.StandardSave(nnx.to_pure_dict(nnx.state(training))),
            data=grain.PyGrainCheckpointSave(batches),
        ),
    )


def restore(checkpoints, training, batches):
    """Restore the latest checkpoint and return its step, or return 0 if there is none."""
    step = checkpoints.latest_step()
    if step is None:
        return 0
    state = nnx.state(training)
    restored = checkpoints.restore(
        step,
        args=ocp.args.Composite(
            training=ocp.args.StandardRestore(nnx.to_pure_dict(state)),
            data=grain.PyGrainCheckpointRestore(batches),
        ),
    )
    nnx.replace_by_pure_dict(state, restored.training)
    nnx.update(training, state)
    return step


def train(training, batches, checkpoints, num_images, arguments, console):
    """Train from the latest checkpoint until the batches end."""
    step = saved = restore(checkpoints, training, batches) if checkpoints else 0
    if step:
        console.print(f"resuming after step {step}, from {arguments.checkpoints}", soft_wrap=True)
    with Progress(
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # no progress bar in a log
    ) as progress:
        bar = progress.add_task("", total=num_images, completed=step * arguments.batch_size)
        for batch in batches:
            # Waits for the device, while the next batches are transferred to it.
            loss = float(train_step(*training, batch))
            step += 1
            if arguments.losses and jax.process_index() == 0:
                with arguments.losses.open("a") as file:
                    file.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
            if checkpoints and step % arguments.save_every == 0:
                save(checkpoints, step, training, batches)
                saved = step
                console.print(f"step {step}: loss {loss:.4f}, saved")
            shown = f"loss {loss:.4f}, {progress.tasks[bar].speed or 0:,.0f} images/s"
            progress.update(bar, advance=arguments.batch_size, description=shown)
    if checkpoints and step > saved:
        save(checkpoints, step, training, batches)


def main():
    """Train, evaluate, and print how long the training waited for data."""
    parser, arguments = parse()
    if arguments.distributed:
        jax.distributed.initialize()
    if arguments.batch_size % jax.device_count():
        parser.error(f"--batch-size must be a multiple of the {jax.device_count()} devices")
    try:
        data = load_mnist(arguments.data)
    except MnistError as error:
        parser.error(str(error))
    console = Console(highlight=False, markup=False, quiet=jax.process_index() > 0)
    num_images = arguments.epochs * len(data.train_labels)
    console.print(f"{data} on {jax.device_count()} x {jax.devices()[0].device_kind}")

    # Batches are sharded by rows over all devices of all hosts; parameters are replicated.
    mesh = Mesh(jax.devices(), ("data",))
    make = nnx.jit(make_training, static_argnums=0, out_shardings=NamedSharding(mesh, P()))
    training = make(arguments.seed)

    loader = make_loader(
        data.train_images,
        data.train_labels,
        arguments,
        epochs=arguments.epochs,
        shuffle=True,
        transforms=[Shift()],
    )
    checkpoints = None
    if arguments.checkpoints:
        checkpoints = ocp.CheckpointManager(
            arguments.checkpoints.resolve(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
        )
    with grain.feed(loader, mesh, P("data"), remainder="pad") as batches:
        train(training, batches, checkpoints, num_images, arguments, console)
        waited = batches.stats().summary()
    if checkpoints:
        checkpoints.close()

    model, _ = training
    model.eval()  # no dropout
    correct = total = 0
    test = make_loader(data.test_images, data.test_labels, arguments)
    with grain.feed(test, mesh, P("data"), remainder="pad") as batches:
        for batch in batches:
            counts = count_correct(model, batch)
            correct, total = correct + int(counts[0]), total + int(counts[1])
    console.print(f"test accuracy {correct / total:.4f}: {correct:,} of {total:,} images")
    console.print(waited)


def parse():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=at_least(1), default=3, metavar="N", help="number of epochs (3)")
    add("--batch-size", type=at_least(1), default=128, metavar="N", help="over all devices (128)")
    add("--data", type=Path, metavar="DIR", help="folder of MNIST's four idx files, .gz or not")
    add("--checkpoints", type=Path, metavar="DIR", help="save here, and resume from here")
    add("--save-every", type=at_least(1), default=50, metavar="N", help="steps between saves (50)")
    add("--workers", type=at_least(0), default=0, metavar="N", help="data worker processes (0)")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of model, order and shifts (0)")
    add("--losses", type=Path, metavar="FILE", help="append the exact loss of each step")
    add("--distributed", action="store_true", help="join the other hosts of a cluster")
    return parser, parser.parse_args()


def at_least(least):
    """Return the `type` of an argument that must be an integer of at least `least`."""

    def number(string):
        if not string.isdecimal() or int(string) < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {string!r}"
            )
        return int(string)

    return number


if __name__ == "__main__":
    main()
