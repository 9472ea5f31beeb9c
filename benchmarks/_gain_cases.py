"""Pipelines with a planted bottleneck of each kind, for `benchmarks.predicted_gains`."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import gristmill as gm

NUM_RECORDS = 10**6
NUM_LARGE = 256


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the advice changes."""

    worker_count: int | None = 0
    num_threads: int = 0
    size: float = 1.0
    """The bytes of a record, relative to those of the case."""


Open = Callable[[Setting], AbstractContextManager[Any]]
"""Returns an iterator with `stats()`."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pipeline with a planted bottleneck."""

    name: str
    kinds: tuple[str, ...]
    open: Open
    setting: Setting
    alternative: Setting | None = None
    """What is measured if no change of a setting is recommended: it should bring little."""
    consumer_s: float = 0.0
    """CPU time that the consumer takes for each batch."""
    is_dataset: bool = False


def wait(number: int) -> int:
    """Wait as a read of a disk or a network does."""
    time.sleep(0.004)
    return number


def compute_a_little(number: int) -> int:
    """Hold the interpreter lock for one or two milliseconds."""
    total = 0
    for value in range(30_000):
        total += value
    return number


def compute_in_python(number: int) -> int:
    """Hold the interpreter lock."""
    total = 0
    for value in range(60_000):
        total += value
    return number


_BYTES = np.ones(2**23, np.uint8).tobytes()


def compute_in_native_code(number: int) -> int:
    """Compute without the interpreter lock."""
    hashlib.sha256(_BYTES).digest()  # releases the interpreter lock
    return number


class SameArray:
    """A large array that takes no time to read: only workers must copy it."""

    def __init__(self, size: float) -> None:
        self._array = np.ones(int(2**20 * size))

    def __len__(self) -> int:
        return NUM_RECORDS

    def __getitem__(self, index: int) -> np.ndarray:
        return self._array


class SameBatch(gm.DatasetIterator[Any]):
    """One batch again and again, which takes no time but must be converted for JAX."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self._batch = np.ones((64, int(50_000 * size)))

    def __next__(self) -> Any:
        return self._batch

    def get_state(self) -> Any:
        return {}

    def set_state(self, state: Any) -> None:
        del state


def consume(seconds: float) -> None:
    """Compute as a training step does."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def loaded(*steps: Any, source: Callable[[float], Any] | None = None, batch_size: int = 4) -> Open:
    """Return how to open a loader of batches."""

    @contextmanager
    def open_loader(setting: Setting) -> Iterator[Any]:
        with _loader(setting, steps, source, batch_size) as loader, iter(loader) as batches:
            yield batches

    return open_loader


def _loader(
    setting: Setting, steps: tuple[Any, ...], source: Callable[[float], Any] | None, batch_size: int
) -> Any:
    return gm.load(
        range(NUM_RECORDS) if source is None else source(setting.size),
        num_epochs=None,
        batch_size=batch_size or None,
        transformations=steps,
        worker_count=setting.worker_count,
        read_options=gm.ReadOptions(num_threads=setting.num_threads),
    )


def mapped(*steps: Any) -> Open:
    """Return how to open a `MapDataset` with batches below `to_iter_dataset`."""

    @contextmanager
    def open_dataset(setting: Setting) -> Iterator[Any]:
        dataset = gm.MapDataset.range(NUM_RECORDS)
        for step in steps:
            dataset = dataset.map(step)
        stream = dataset.batch(8).to_iter_dataset(gm.ReadOptions(num_threads=setting.num_threads))
        if setting.worker_count:
            stream = stream.mp_prefetch(gm.MultiprocessingOptions(setting.worker_count))
        with iter(stream) as batches:
            yield batches

    return open_dataset


@contextmanager
def fed(setting: Setting) -> Iterator[Any]:
    """Open a feed of batches that JAX must convert, so that placing them takes long."""
    with gm.feed(SameBatch(setting.size)) as batches:
        yield batches


def _large_rows(size: float) -> Any:
    return gm.ArraySource(np.ones((NUM_LARGE, int(200_000 * size))))


INLINE = Setting()
THREADS = Setting(num_threads=2)
DEFAULT = Setting(num_threads=16)
WORKER = Setting(worker_count=1, num_threads=1)
AUTOMATIC = Setting(worker_count=None, num_threads=16)
CASES = (
    Case(name="waits, inline", kinds=("waiting",), open=loaded(wait), setting=INLINE),
    Case(name="waits, threads", kinds=("waiting",), open=loaded(wait), setting=THREADS),
    Case(name="waits, worker", kinds=("waiting",), open=loaded(wait), setting=WORKER),
    Case(
        name="waits, inline, and a consumer that computes",
        kinds=("waiting",),
        open=loaded(wait),
        setting=INLINE,
        consumer_s=0.004,
    ),
    Case(
        name="Python, inline",
        kinds=("computing",),
        open=loaded(compute_in_python),
        setting=INLINE,
    ),
    Case(
        name="Python, threads",
        kinds=("interpreter", "computing"),
        open=loaded(compute_in_python),
        setting=THREADS,
    ),
    Case(
        name="Python, worker",
        kinds=("computing",),
        open=loaded(compute_in_python),
        setting=WORKER,
    ),
    Case(
        name="native code, inline",
        kinds=("computing",),
        open=loaded(compute_in_native_code),
        setting=INLINE,
    ),
    Case(
        name="native code, worker",
        kinds=("computing",),
        open=loaded(compute_in_native_code),
        setting=WORKER,
    ),
    Case(
        name="waits, then Python, default threads",
        kinds=("waiting", "interpreter", "consumer"),
        open=loaded(wait, compute_a_little),
        setting=DEFAULT,
        consumer_s=0.002,
    ),
    Case(
        name="waits, then Python, inline",
        kinds=("waiting",),
        open=loaded(wait, compute_a_little),
        setting=INLINE,
        consumer_s=0.002,
    ),
    Case(
        name="dataset, waits, inline",
        kinds=("waiting",),
        open=mapped(wait),
        setting=INLINE,
        is_dataset=True,
    ),
    Case(
        name="dataset, waits, default threads",
        kinds=("waiting",),
        open=mapped(wait),
        setting=DEFAULT,
        is_dataset=True,
    ),
    Case(
        name="dataset, Python, inline",
        kinds=("computing",),
        open=mapped(compute_in_python),
        setting=INLINE,
        is_dataset=True,
    ),
    Case(
        name="waits, worker_count=None",
        kinds=("waiting", "overhead"),
        open=loaded(wait),
        setting=AUTOMATIC,
        alternative=Setting(worker_count=2, num_threads=16),
    ),
    Case(
        name="Python, worker_count=None",
        kinds=("computing", "interpreter"),
        open=loaded(compute_in_python),
        setting=AUTOMATIC,
        alternative=Setting(worker_count=2, num_threads=16),
    ),
    Case(
        name="memory bandwidth: batches of 26 MB, inline",
        kinds=("computing",),
        open=loaded(source=_large_rows, batch_size=16),
        setting=INLINE,
        alternative=Setting(worker_count=2, num_threads=16),
    ),
    Case(
        name="transfer: arrays of 8 MB, workers",
        kinds=("transfer",),
        open=loaded(source=SameArray, batch_size=0),
        setting=Setting(worker_count=2, num_threads=1),
    ),
    Case(
        name="device: a feed of float64 that JAX converts",
        kinds=("device",),
        open=fed,
        setting=INLINE,
    ),
)
