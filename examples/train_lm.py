"""Train a small byte-level transformer on two texts, data-parallel over all devices.

Paragraphs of "Alice's Adventures in Wonderland" and of the Constitution of the United States are
mixed, packed into rows and fed to JAX. At the end, the model is evaluated on paragraphs that were
held out. With `--checkpoints` you can stop it at any time, even with `kill -9`: the same command
resumes with exactly the losses of an uninterrupted run.
"""

import argparse
import json
import time
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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import gristmill as grain

TEXTS = Path(__file__).parent / "texts"
WEIGHTS = {"alice.txt": 0.8, "constitution.txt": 0.2}  # share of the paragraphs
PADDING, MARK, NUM_TOKENS = 0, 1, 256  # not in the texts; MARK starts and ends a paragraph
ROW_LENGTH = 256
HELD_OUT = 0.05  # share of the paragraphs of a text that the model is evaluated on
SPLIT_SEED = 0  # not that of the training, so that all trainings are evaluated on the same
NUM_BINS = 32  # rows filled at a time: more rows mean less padding

WIDTH, NUM_HEADS, NUM_LAYERS = 96, 4, 2
SLOWEST_TURN = 500.0  # positions per radian of the slowest rotary angle
LEARNING_RATE, WARM_UP_STEPS = 3e-3, 40
PROMPTS = "Alice ", "The President "
SAMPLE_LENGTH, TEMPERATURE = 128, 0.5

EPILOG = """\
examples:
  python examples/train_lm.py
  python examples/train_lm.py --steps 1000 --checkpoints DIR    run it again to resume
  XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/train_lm.py
"""


def paragraphs(name):
    """Return the paragraphs of a text."""
    return (TEXTS / name).read_bytes().split(b"\n\n")


def split_paragraphs(name):
    """Return the paragraphs of a text to train on, and those that are held out."""
    return grain.split(paragraphs(name), [1 - HELD_OUT, HELD_OUT], seed=SPLIT_SEED)


def documents(paragraphs):
    """Return paragraphs between marks, cut to fit into a row."""
    marked = [b"%c%b%c" % (MARK, paragraph.strip(b"\n"), MARK) for paragraph in paragraphs]
    return [
        document[begin : begin + ROW_LENGTH]
        for document in marked
        for begin in range(0, len(document), ROW_LENGTH)
    ]


def tokenize(document):
    """Convert bytes to tokens."""
    return {"tokens": np.frombuffer(document, np.uint8).astype(np.int32)}


def add_targets(row):
    """Add the target of each token: the next one of its document, or padding for the last one."""
    tokens, segments = row["tokens"], row["tokens_segment_ids"]
    targets = np.full_like(tokens, PADDING)
    targets[:-1] = np.where(segments[:-1] == segments[1:], tokens[1:], PADDING)
    return {
        "tokens": tokens,
        "targets": targets,
        "segments": segments,
        "positions": row["tokens_positions"],
    }


def pack(documents, seed):
    """Return the dataset of rows that documents are packed into, with targets."""
    rows = grain.experimental.BestFitPackIterDataset(
        documents.map(tokenize).to_iter_dataset(),
        length_struct={"tokens": ROW_LENGTH},
        num_packing_bins=NUM_BINS,
        seed=seed,
    )
    return rows.map(add_targets)


def make_evaluation(name, *, batch_size):
    """Return the dataset of batches of the paragraphs of a text that are held out."""
    held_out = grain.MapDataset.source(documents(split_paragraphs(name)[1]))
    return pack(held_out, SPLIT_SEED).batch(batch_size)


def make_dataset(*, batch_size, seed, num_workers=0, num_epochs=None):
    """Return the dataset of batches, infinite unless `num_epochs` is passed."""
    sources = [
        grain.MapDataset.source(documents(split_paragraphs(name)[0]))
        .seed(seed + number)
        .shuffle()
        .repeat(num_epochs)
        for number, name in enumerate(WEIGHTS)
    ]
    mixed = grain.MapDataset.mix(sources, weights=list(WEIGHTS.values()))
    batches = pack(mixed, seed).batch(batch_size, drop_remainder=True)
    return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=num_workers))


def rotate(x, positions):
    """Apply rotary position embeddings: rotate vectors by angles proportional to position."""
    frequencies = SLOWEST_TURN ** -jnp.linspace(0.0, 1.0, x.shape[-1] // 2)
    angles = positions[:, :, None, None] * frequencies
    left, right = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


class Block(nnx.Module):
    """Attention, then a feed-forward layer for each token."""

    def __init__(self, rngs):
        self.attention_norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.split = nnx.LinearGeneral(WIDTH, (3, NUM_HEADS, WIDTH // NUM_HEADS), rngs=rngs)
        self.join = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.widen = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.narrow = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, positions, mask):
        query, key, value = jnp.moveaxis(self.split(self.attention_norm(x)), 2, 0)
        query, key = rotate(query, positions), rotate(key, positions)
        seen = jax.nn.dot_product_attention(query, key, value, mask=mask)
        x = x + self.join(seen.reshape(x.shape))
        return x + self.narrow(jax.nn.gelu(self.widen(self.norm(x))))


class Transformer(nnx.Module):
    """Returns the logits of the next token after each token."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(NUM_TOKENS, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(NUM_LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, NUM_TOKENS, rngs=rngs)

    def __call__(self, tokens, segments, positions):
        # Each token attends to earlier tokens of its own document only.
        mask = jnp.tril(segments[:, :, None] == segments[:, None, :])[:, None]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, positions, mask)
        return self.out(self.norm(x))


def losses_of(model, batch):
    """Return the loss of the next byte after each byte, in nats."""
    logits = model(batch["tokens"], batch["segments"], batch["positions"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])


@nnx.jit
def train_step(model, optimizer, batch):
    """Take a training step; return the mean loss in nats per byte, and the number of bytes."""
    has_target = batch["targets"] != PADDING

    def mean_loss(model):
        return jnp.mean(losses_of(model, batch), where=has_target)

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss, jnp.sum(has_target)


@nnx.jit
def sum_losses(model, batch):
    """Return the sum of the losses of a batch, and the number of bytes."""
    has_target = batch["targets"] != PADDING  # false in the rows that `feed` pads with
    return jnp.sum(losses_of(model, batch), where=has_target), jnp.sum(has_target)


@nnx.jit
def complete(model, tokens, begin, key):
    """Replace the tokens from position `begin` on by tokens sampled from the model."""
    segments, positions = jnp.ones_like(tokens), jnp.arange(len(tokens))

    def draw(position, tokens):
        logits = model(tokens[None], segments[None], positions[None])[0, position - 1]
        drawn = jax.random.categorical(jax.random.fold_in(key, position), logits / TEMPERATURE)
        return tokens.at[position].set(drawn)

    return jax.lax.fori_loop(begin, len(tokens), draw, tokens)


def sample(model, prompt, seed):
    """Sample a paragraph that starts with a prompt."""
    start = np.frombuffer(b"%c%b" % (MARK, prompt.encode()), np.uint8)
    tokens = jnp.zeros(SAMPLE_LENGTH, jnp.int32).at[: len(start)].set(start)
    drawn = complete(model, tokens, len(start), jax.random.key(seed)).tolist()
    end = drawn.index(MARK, 1) if MARK in drawn[1:] else len(drawn)
    return "".join(chr(t) if t in range(32, 127) or t == 10 else "?" for t in drawn[1:end])


def make_training(seed):
    """Return a new model and its optimizer."""
    model = Transformer(nnx.Rngs(seed))
    schedule = optax.linear_schedule(0.0, LEARNING_RATE, WARM_UP_STEPS)
    return model, nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)


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
    """Train from the latest checkpoint up to the last step."""
    first = restore(checkpoints, training, batches) if checkpoints else 0
    console.print(f"Devices: {jax.device_count()}, steps: {first + 1} to {arguments.steps}")
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # no progress bar in a log
    ) as progress:
        bar = progress.add_task("compiling", total=arguments.steps, completed=first)
        num_tokens, began = 0, None
        for step in range(first + 1, arguments.steps + 1):
            # Waits for the device, while the next batches are transferred to it.
            loss, count = train_step(*training, next(batches))
            loss, count = float(loss), int(count)
            now = time.perf_counter()
            if began is None:
                began = now  # the first step includes compilation
            else:
                num_tokens += count
            shown = f"loss {loss:.3f}, {num_tokens / max(now - began, 1e-9):,.0f} tokens/s"
            progress.update(bar, advance=1, description=shown)
            if arguments.losses:
                with arguments.losses.open("a") as file:
                    file.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
            if step % arguments.save_every == 0 or step == arguments.steps:
                console.print(f"step {step}: {shown}")
                if checkpoints:
                    save(checkpoints, step, training, batches)


def evaluate(model, dataset, mesh):
    """Return the mean loss over a dataset, in nats per byte."""
    total = num_bytes = 0
    with grain.feed(dataset, mesh, P("data"), remainder="pad") as batches:
        for batch in batches:
            loss, count = sum_losses(model, batch)
            total, num_bytes = total + float(loss), num_bytes + int(count)
    return total / num_bytes


def main():
    """Train, print samples, evaluate, and explain how the training was fed."""
    arguments = parse()
    console = Console(highlight=False, markup=False, soft_wrap=True)

    # Batches are sharded by rows over all devices; parameters are replicated.
    mesh = Mesh(jax.devices(), ("data",))
    make = nnx.jit(make_training, static_argnums=0, out_shardings=NamedSharding(mesh, P()))
    training = make(arguments.seed)

    dataset = make_dataset(
        batch_size=arguments.batch_size, seed=arguments.seed, num_workers=arguments.workers
    )
    checkpoints = None
    if arguments.checkpoints:
        checkpoints = ocp.CheckpointManager(
            arguments.checkpoints.resolve(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
        )
    with grain.feed(dataset, mesh, P("data")) as batches:
        train(training, batches, checkpoints, arguments, console)
        explanation = batches.explain()
    if checkpoints:
        checkpoints.close()

    for prompt in PROMPTS:
        console.print(f"\n{sample(training[0], prompt, arguments.seed)}")
    console.print()
    for name in WEIGHTS:
        loss = evaluate(training[0], make_evaluation(name, batch_size=arguments.batch_size), mesh)
        console.print(f"loss on held-out paragraphs of {name}: {loss:.3f}")
    console.print(f"\n{explanation}")


def parse():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=positive, default=300, metavar="N", help="number of training steps (300)")
    add("--batch-size", type=positive, default=8, metavar="N", help="over all devices (8)")
    add("--checkpoints", type=Path, metavar="DIR", help="save here, and resume from here")
    add("--save-every", type=positive, default=50, metavar="N", help="steps between saves (50)")
    add("--workers", type=int, default=0, metavar="N", help="data worker processes (0)")
    add("--seed", type=int, default=0, metavar="N", help="of model, order and sample (0)")
    add("--losses", type=Path, metavar="FILE", help="append the exact loss of each step")
    arguments = parser.parse_args()
    if arguments.batch_size % jax.device_count():
        parser.error(f"--batch-size must be a multiple of the {jax.device_count()} devices")
    return arguments


def positive(string):
    """Parse an integer of at least 1."""
    if not string.isdecimal() or int(string) == 0:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {string!r}")
    return int(string)


if __name__ == "__main__":
    main()
