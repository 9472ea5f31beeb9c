"""Train a small vision transformer on a folder of images, with augmentation and worker processes.

The folder has one folder per class, as torchvision expects them. Without `--data`, a folder of
drawn shapes is made. A fifth of the images, with its share of every class, is kept for evaluation.
With `--checkpoints` you can stop it at any time, even with `kill -9`: the same command resumes with
exactly the losses of an uninterrupted run. At the end it explains where the time went.
"""

import argparse
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from PIL import Image, ImageDraw
from rich.console import Console

import gristmill as grain
from gristmill.sources import ImageFolderSource
from gristmill.transforms import DecodeImage

SHAPES = ("circle", "cross", "ring", "square", "triangle")
IMAGES_PER_SHAPE = 200

SIZE, PATCH = 48, 8  # pixels of the side of an image, and of a patch
WIDTH, NUM_HEADS, NUM_LAYERS = 64, 4, 3
LEARNING_RATE, WARM_UP_STEPS, WEIGHT_DECAY = 2e-3, 50, 0.05

EPILOG = """\
examples:
  python examples/train_vit.py                              drawn shapes
  python examples/train_vit.py --data photos --workers 2    photos/cat/1.jpg, photos/dog/2.png, ...
  python examples/train_vit.py --checkpoints DIR            run it again to resume
"""


def draw_shapes(folder, seed):
    """Draw JPEG files of shapes in random colours, sizes and places, in a folder per shape."""
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES_PER_SHAPE):
            noise = rng.integers(0, 128, (8, 10, 3), np.uint8)
            image = Image.fromarray(noise).resize((80, 64), Image.Resampling.BICUBIC)
            radius = int(rng.integers(10, 20))
            x, y = int(rng.integers(24, 56)), int(rng.integers(22, 42))
            draw_shape(ImageDraw.Draw(image), shape, x, y, radius, tuple(rng.integers(128, 256, 3)))
            image.save(folder / shape / f"{number}.jpg", quality=90)


def draw_shape(draw, shape, x, y, radius, color):
    """Draw one shape around a point."""
    color = tuple(map(int, color))
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        draw.ellipse(box, fill=color)
    elif shape == "ring":
        draw.ellipse(box, outline=color, width=radius // 3)
    elif shape == "square":
        draw.rectangle(box, fill=color)
    elif shape == "triangle":
        draw.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], color)
    else:
        draw.line((x - radius, y, x + radius, y), color, radius // 2)
        draw.line((x, y - radius, x, y + radius), color, radius // 2)


class Resize(grain.Map):
    """Resizes an image so that its shorter side has a given length, and cuts out the middle."""

    def __init__(self, side):
        self.side = side

    def map(self, element):
        """Return the element with a square image."""
        image = Image.fromarray(element["image"])
        scale = self.side / min(image.size)
        image = image.resize([max(self.side, round(length * scale)) for length in image.size])
        left, top = ((length - self.side) // 2 for length in image.size)
        square = image.crop((left, top, left + self.side, top + self.side))
        return {**element, "image": np.asarray(square)}


class CutMiddle(grain.Map):
    """Cuts the middle out of a square image, where the random squares of the training are."""

    def map(self, element):
        """Return the element with a smaller image."""
        begin = (len(element["image"]) - SIZE) // 2
        return {**element, "image": element["image"][begin:, begin:][:SIZE, :SIZE]}


class Augment(grain.RandomMap):
    """Cuts out a random square, and flips every second one. Differs in each epoch."""

    def random_map(self, element, rng):
        """Return the element with its image augmented. `rng` depends on seed and position only."""
        image = element["image"]
        top, left = rng.integers(0, np.subtract(image.shape[:2], SIZE - 1))
        image = image[top : top + SIZE, left : left + SIZE]
        return {**element, "image": image[:, ::-1] if rng.random() < 0.5 else image}


class Block(nnx.Module):
    """Attention between patches, then a feed-forward layer for each of them."""

    def __init__(self, rngs):
        self.attention_norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            NUM_HEADS, WIDTH, deterministic=True, decode=False, rngs=rngs
        )
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.widen = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.narrow = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.narrow(jax.nn.gelu(self.widen(self.norm(x))))


class VisionTransformer(nnx.Module):
    """Returns the logits of the classes."""

    def __init__(self, num_classes, rngs):
        num_patches = (SIZE // PATCH) ** 2
        self.embed = nnx.Conv(3, WIDTH, (PATCH, PATCH), strides=PATCH, padding="VALID", rngs=rngs)
        self.positions = nnx.Param(0.02 * jax.random.normal(rngs.params(), (num_patches, WIDTH)))
        self.blocks = nnx.List([Block(rngs) for _ in range(NUM_LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, num_classes, rngs=rngs)

    def __call__(self, images):
        # Images are transferred as bytes, a quarter of the size.
        x = self.embed(images.astype(jnp.float32) / 127.5 - 1)
        x = x.reshape(len(x), -1, WIDTH) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x).mean(axis=1))


@nnx.jit
def train_step(model, optimizer, batch):
    """Take a training step, and return the mean loss over the rows that are not padding."""

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


def make_training(num_classes, seed):
    """Return a new model and its optimizer."""
    model = VisionTransformer(num_classes, nnx.Rngs(seed))
    schedule = optax.linear_schedule(0.0, LEARNING_RATE, WARM_UP_STEPS)
    optimizer = optax.adamw(schedule, weight_decay=WEIGHT_DECAY)
    return model, nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def make_loaders(folder, arguments):
    """Return the names of the classes, and the loaders of the training and the evaluation."""
    source = ImageFolderSource(folder)
    train, test = grain.split(source, [0.8, 0.2], seed=arguments.seed, stratify="label")
    prepare = [DecodeImage("image"), Resize(SIZE + 8)]
    options = {"batch_size": arguments.batch_size, "worker_count": arguments.workers}
    training = grain.load(
        train,
        shuffle=True,
        seed=arguments.seed,
        num_epochs=arguments.epochs,
        transformations=[*prepare, Augment()],
        **options,
    )
    evaluation = grain.load(test, num_epochs=1, transformations=[*prepare, CutMiddle()], **options)
    return source.classes, training, evaluation


def save(checkpoints, step, training, batches):
    """Save model, optimizer and the position in the data as one atomic checkpoint."""
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


def train(training, batches, checkpoints, arguments, console):
    """Train from the latest checkpoint until the batches end."""
    step = saved = restore(checkpoints, training, batches) if checkpoints else 0
    if step:
        console.print(f"resuming after step {step}, from {arguments.checkpoints}")
    for batch in grain.progress(batches):
        loss = float(train_step(*training, batch))  # waits for the device, not for the data
        step += 1
        if arguments.losses:
            with arguments.losses.open("a") as file:
                file.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
        if step % arguments.save_every == 0:
            console.print(f"step {step}: loss {loss:.3f}")
            if checkpoints:
                save(checkpoints, step, training, batches)
                saved = step
    if checkpoints and step > saved:
        save(checkpoints, step, training, batches)


def evaluate(model, loader, mesh):
    """Return the share of the images that the model classifies correctly."""
    correct = total = 0
    with grain.feed(loader, mesh, P("data"), remainder="pad") as batches:
        for batch in batches:
            counts = count_correct(model, batch)
            correct, total = correct + int(counts[0]), total + int(counts[1])
    return correct / total


def main():
    """Train, evaluate, and explain how the training was fed."""
    arguments = parse()
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as drawn:
        folder = arguments.data or Path(drawn) / "shapes"  # states contain the name
        if not arguments.data:
            console.print(f"drawing {IMAGES_PER_SHAPE} images each of {', '.join(SHAPES)}")
            draw_shapes(folder, arguments.seed)
        classes, loader, test = make_loaders(folder, arguments)

        # Batches are sharded by rows over all devices; parameters are replicated.
        mesh = Mesh(jax.devices(), ("data",))
        make = nnx.jit(make_training, static_argnums=(0, 1), out_shardings=NamedSharding(mesh, P()))
        training = make(len(classes), arguments.seed)
        console.print(f"{len(classes)} classes, {len(loader)} steps, {jax.device_count()} devices")
        checkpoints = None
        if arguments.checkpoints:
            checkpoints = ocp.CheckpointManager(
                arguments.checkpoints.resolve(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
            )
        with loader, test, grain.feed(loader, mesh, P("data"), remainder="pad") as batches:
            train(training, batches, checkpoints, arguments, console)
            explanation = batches.explain()
            accuracy = evaluate(training[0], test, mesh)
        if checkpoints:
            checkpoints.close()
    console.print(f"accuracy on images that were kept for evaluation: {accuracy:.3f}")
    console.print(f"\n{explanation}")


def parse():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with a folder of images for each class")
    add("--epochs", type=at_least(1), default=20, metavar="N", help="number of epochs (20)")
    add("--batch-size", type=at_least(1), default=64, metavar="N", help="over all devices (64)")
    add("--checkpoints", type=Path, metavar="DIR", help="save here, and resume from here")
    add("--save-every", type=at_least(1), default=50, metavar="N", help="steps between saves (50)")
    add("--workers", type=at_least(0), default=2, metavar="N", help="data worker processes (2)")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of model, split and order (0)")
    add("--losses", type=Path, metavar="FILE", help="append the exact loss of each step")
    arguments = parser.parse_args()
    if arguments.batch_size % jax.device_count():
        parser.error(f"--batch-size must be a multiple of the {jax.device_count()} devices")
    if arguments.data and not arguments.data.is_dir():
        parser.error(f"--data must be a folder, got {str(arguments.data)!r}")
    return arguments


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
