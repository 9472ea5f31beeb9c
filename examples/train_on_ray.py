"""Train a linear classifier on MNIST whose images are augmented by the machines of a Ray cluster.

The same program runs on a laptop and on a cluster, and every loss is the same on both.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import gristmill as grain
from gristmill.demo import MnistError, load_mnist

EPILOG = """\
examples:
  python examples/train_on_ray.py                     starts Ray on this machine
  python examples/train_on_ray.py --workers 0         without Ray: the same losses
  ray start --head                                    on the first machine; prints an address
  ray start --address=ADDRESS                         on all others
  python examples/train_on_ray.py --workers 64        on the first machine again
"""


class Shift(grain.RandomMap):
    """Shifts an image by up to two pixels in each direction."""

    def random_map(self, record, rng):
        """Return the record with its image shifted. `rng` depends only on seed and position."""
        down, right = rng.integers(0, 5, size=2)
        canvas = np.zeros((32, 32), np.uint8)
        canvas[2:30, 2:30] = record["image"]
        return {**record, "image": canvas[down : down + 28, right : right + 28]}


@jax.jit
def update(weights, batch):
    """Return the weights after a step, and the loss before it."""

    def loss_of(weights):
        logits = batch["image"].reshape(len(batch["image"]), -1) / 255 @ weights
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(logits)), batch["label"]])

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.5 * gradient, loss


def main():
    """Train for some steps and print the loss."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder with the files of MNIST (default: a sample)"
    )
    parser.add_argument("--workers", type=int, default=2, help="Ray actors (default: 2)")
    parser.add_argument("--address", help="of the cluster (default: one on this machine)")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    try:
        mnist = load_mnist(arguments.data)
    except MnistError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    source = grain.ArraySource({"image": mnist.train_images, "label": mnist.train_labels})
    with grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), shuffle=True, seed=0),
        operations=[Shift(), grain.Batch(128, drop_remainder=True)],
        worker_count=arguments.workers,
        worker_options=grain.RayOptions(address=arguments.address),
    ) as loader:
        weights = jnp.zeros((28 * 28, 10))
        with grain.feed(loader) as batches:
            for step, batch in zip(range(1, arguments.steps + 1), batches, strict=False):
                weights, loss = update(weights, batch)
                if step % 50 == 0:
                    print(f"step {step:4}  loss {loss:.6f}")  # noqa: T201
        for node in loader.stats().nodes:
            print(f"{node.node}: {node.num_blocks} blocks, {node.busy_s:.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
