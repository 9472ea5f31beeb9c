"""The training loop of the demo, and what it shows while it runs."""

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

from gristmill.demo._mlp import LAYER_SIZES, Params, count_correct, init_params, update
from gristmill.demo._mnist import Mnist
from gristmill.demo._pipeline import batches

_T = TypeVar("_T")
_EVAL_BATCH_SIZE: Final = 1_000  # large enough to be quick, small enough for any memory


@final
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to train: what the flags of the command line say."""

    epochs: int
    batch_size: int
    step_size: float
    seed: int
    shuffle: bool


@final
@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """What one epoch took and what the model can do after it."""

    seconds: float
    loader_seconds: float
    train_accuracy: float
    test_accuracy: float


@final
class Stopwatch(Iterable[_T]):
    """Passes an iterable on, adding up the time that its `next` takes.

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
    """Images per second, live."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} images/s", style="cyan")


def train(data: Mnist, options: TrainOptions, console: Console) -> list[EpochResult]:
    """Train from scratch and print a line per epoch; a terminal also gets a progress bar."""
    params = init_params(options.seed)
    results: list[EpochResult] = []
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        SpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a log gets the lines alone
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


def print_opening(data: Mnist, origin: str, options: TrainOptions, console: Console) -> None:
    """Say what is about to be trained on what."""
    console.print(
        f"{origin}: {len(data.train_labels):,} images to train, {len(data.test_labels):,} to test\n"
        f"Perceptron {'-'.join(map(str, LAYER_SIZES))} in JAX on {jax.default_backend()}, "
        f"batches of {options.batch_size} {'shuffled' if options.shuffle else 'in file order'}",
        soft_wrap=True,
        highlight=False,
        markup=False,  # a path may have brackets
    )


def print_summary(data: Mnist, results: list[EpochResult], console: Console) -> None:
    """Say how it went, with the share of the time that the loader took."""
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
    """Give the new weights, the seconds it took, and those of them spent in the loader."""
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
    # JAX computes in the background: the clock waits for it.
    jax.block_until_ready(params)  # pyright: ignore[reportUnknownMemberType]
    return params, time.perf_counter() - start, watch.seconds


def _accuracy(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    correct = sum(
        int(count_correct(params, x, y))
        for x, y in batches(images, labels, batch_size=_EVAL_BATCH_SIZE)
    )
    return correct / len(labels)
