"""The training loop of the demo, with its progress bar and its table of results."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar, final

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

_T = TypeVar("_T")
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
    """The duration of one epoch, and the accuracies of the model after it."""

    seconds: float
    loader_seconds: float
    train_accuracy: float
    test_accuracy: float


@final
class Stopwatch(Iterable[_T]):
    """Wraps an iterable and measures the total time of its `next` calls.

    >>> watch = Stopwatch([1, 2])
    >>> list(watch), watch.seconds < 1
    ([1, 2], True)
    """

    def __init__(self, items: Iterable[_T]) -> None:
        self._items = items
        self.seconds = 0.0

    def __iter__(self) -> Iterator[_T]:
        start = time.perf_counter()
        for item in self._items:
            self.seconds += time.perf_counter() - start
            yield item
            start = time.perf_counter()
        self.seconds += time.perf_counter() - start


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
            params, seconds, loader_seconds = _train_epoch(
                params, data, options, epoch=epoch, progress=progress, bar=bar
            )
            progress.update(bar, description=f"{name}, measuring")
            result = EpochResult(
                seconds=seconds,
                loader_seconds=loader_seconds,
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
    """Print the results, with the share of the time spent in the loader."""
    seconds = sum(result.seconds for result in results)
    loader_seconds = sum(result.loader_seconds for result in results)
    num_images = len(results) * len(data.train_labels)
    last = results[-1]
    rows = Table.grid(padding=(0, 2))
    rows.add_row("Test accuracy", f"[bold green]{last.test_accuracy:.4f}[/]")
    rows.add_row("Train accuracy", f"{last.train_accuracy:.4f}")
    rows.add_row(
        "Training", f"{num_images:,} images in {seconds:.1f} s, {num_images / seconds:,.0f} per s"
    )
    rows.add_row("Loader", f"{loader_seconds:.2f} s of that, {100 * loader_seconds / seconds:.1f}%")
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
    """Return the new weights, the duration, and how much of it was spent in the loader."""
    start = time.perf_counter()
    watch = Stopwatch(
        batches(
            data.train_images,
            data.train_labels,
            batch_size=options.batch_size,
            shuffle=options.shuffle,
            seed=(options.seed + epoch) % 2**32,  # another order in every epoch
        )
    )
    for images, labels in watch:
        params = update(params, images, labels, options.step_size)
        progress.advance(bar, len(labels))
    # JAX computes asynchronously: wait for it before reading the clock.
    jax.block_until_ready(params)  # pyright: ignore[reportUnknownMemberType]
    return params, time.perf_counter() - start, watch.seconds


def _accuracy(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    correct = sum(
        int(count_correct(params, x, y))
        for x, y in batches(images, labels, batch_size=_EVAL_BATCH_SIZE)
    )
    return correct / len(labels)
