"""The training loop of the demo, with its progress bar and its table of results."""

import time
from dataclasses import dataclass
from typing import Final, final

import jax
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from gristmill._demo.mlp import LAYER_SIZES, Params, count_correct, init_params, update
from gristmill._demo.mnist import Mnist
from gristmill._demo.pipeline import batches

_EVAL_BATCH_SIZE: Final = 1_000  # large enough to be fast, small enough to fit into any memory


@final
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The flags of the command line."""

    epochs: int
    batch_size: int
    step_size: float
    seed: int
    shuffle: bool


@final
@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """The duration of one epoch, what loading took of it, and the accuracies of the model."""

    seconds: float
    loader_cpu_s: float
    train_accuracy: float
    test_accuracy: float


@final
class SpeedColumn(ProgressColumn):
    """A column of the progress bar: images per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} images/s", style="cyan")


def train(data: Mnist, options: TrainOptions, console: Console) -> list[EpochResult]:
    """Train from scratch and print a line per epoch, and a progress bar on a terminal."""
    params = init_params(options.seed)
    results: list[EpochResult] = []
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        SpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a log gets only the lines
    )
    with progress:
        bar = progress.add_task("", total=len(data.train_labels))
        for epoch in range(options.epochs):
            name = f"epoch {epoch + 1:>{len(str(options.epochs))}}/{options.epochs}"
            progress.reset(bar, description=name)
            params, seconds, loader_cpu_s = _train_epoch(
                params, data, options, epoch=epoch, progress=progress, bar=bar
            )
            progress.update(bar, description=f"{name}, measuring")
            result = EpochResult(
                seconds=seconds,
                loader_cpu_s=loader_cpu_s,
                train_accuracy=_accuracy(params, data.train_images, data.train_labels),
                test_accuracy=_accuracy(params, data.test_images, data.test_labels),
            )
            results.append(result)
            speed = len(data.train_labels) / result.seconds
            console.print(
                f"{name}   train accuracy {result.train_accuracy:.4f}   "
                f"test accuracy {result.test_accuracy:.4f}   "
                f"{speed:>7,.0f} images/s",
                soft_wrap=True,
            )
    return results


def print_setup(data: Mnist, origin: str, options: TrainOptions, console: Console) -> None:
    """Print the data, the model and the order of the batches."""
    console.print(
        f"{origin}: {len(data.train_labels):,} images to train, {len(data.test_labels):,} to test\n"
        f"Perceptron {'-'.join(map(str, LAYER_SIZES))} in JAX on {jax.default_backend()}, "
        f"batches of {options.batch_size} {'shuffled' if options.shuffle else 'in file order'}",
        soft_wrap=True,
        highlight=False,
        markup=False,  # a path may contain brackets
    )


def print_summary(data: Mnist, results: list[EpochResult], console: Console) -> None:
    """Print the results, with what loading took of the time.

    It is the time for which loading had a core: what the loop waited would include the time for
    which other programs had the cores.
    """
    seconds = sum(result.seconds for result in results)
    loader_cpu_s = sum(result.loader_cpu_s for result in results)
    num_images = len(results) * len(data.train_labels)
    last = results[-1]
    rows = Table.grid(padding=(0, 2))
    rows.add_row("Test accuracy", f"[bold green]{last.test_accuracy:.4f}[/]")
    rows.add_row("Train accuracy", f"{last.train_accuracy:.4f}")
    rows.add_row(
        "Training", f"{num_images:,} images in {seconds:.1f} s, {num_images / seconds:,.0f} per s"
    )
    rows.add_row(
        "Loading", f"{loader_cpu_s:.2f} s of one core, {100 * loader_cpu_s / seconds:.1f}%"
    )
    console.print(Panel.fit(rows, title="gristmill", title_align="left"))


def _train_epoch(
    params: Params,
    data: Mnist,
    options: TrainOptions,
    *,
    epoch: int,
    progress: Progress,
    bar: TaskID,
) -> tuple[Params, float, float]:
    """Return the new weights, the duration, and for how long of it loading had a core."""
    start = time.perf_counter()
    loader = batches(
        data.train_images,
        data.train_labels,
        batch_size=options.batch_size,
        shuffle=options.shuffle,
        seed=(options.seed + epoch) % 2**32,  # another order in every epoch
    )
    for images, labels in loader:
        params = update(params, images, labels, options.step_size)
        progress.advance(bar, len(labels))
    # JAX computes asynchronously: wait for it before reading the clock.
    jax.block_until_ready(params)  # pyright: ignore[reportUnknownMemberType]
    seconds = time.perf_counter() - start
    return params, seconds, sum(step.cpu_s for step in loader.stats().steps)


def _accuracy(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    correct = sum(
        int(count_correct(params, x, y))
        for x, y in batches(images, labels, batch_size=_EVAL_BATCH_SIZE)
    )
    return correct / len(labels)
