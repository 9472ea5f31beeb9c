"""All the ways to run one pipeline, and what a run gives, taken down to the bit."""

import contextlib
import importlib
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import strategies as st

import tests.properties.pipelines
import tests.properties.trees
from gristmill import DataLoader, DataLoaderIterator, ReadOptions, WorkerOptions
from gristmill._engine import segment as _segment
from gristmill._engine import stream as _stream
from gristmill._engine.access import windows as _windows
from gristmill._engine.executors.processes.executor import ProcessExecutor
from gristmill._engine.stages import ranges as _feed
from gristmill._engine.tuning import autotune as _tune
from gristmill._engine.tuning import waiting as _waiting
from gristmill._engine.tuning.autotune import AutotunedStage
from gristmill.errors import GristmillWarning
from tests.properties.pipelines import Pipeline


def by_value(module: str) -> None:
    """Send what is defined in a module of the tests to the workers, who cannot import it.

    Those that can be imported would bring hypothesis along, which takes them half a second.
    """
    cloudpickle.register_pickle_by_value(sys.modules[module])


for module in (__name__, tests.properties.pipelines.__name__, tests.properties.trees.__name__):
    by_value(module)


MOST_HOPS = 500
"""More than any stream here has elements: what comes in the way of a livelock."""


class FixedPace:
    """A pace that never learns."""

    def __init__(self, size: int, seconds: float, *, limit: int) -> None:
        self.size = min(size, limit)

    def observe(self, size: int, seconds: float, *, has_collected: bool = False) -> None:
        """Learn nothing."""

    def lengthen(self) -> None:
        """Stay as it is."""


def force_worker(number: int, num_workers: int, *, uses_arena: bool, is_wide: bool) -> None:
    """In a worker: make rare things frequent."""

    def force(module: str, **constants: Any) -> None:
        for name, value in constants.items():
            assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"
            setattr(importlib.import_module(module), name, value)

    if uses_arena:  # what is small goes the way of what is large, and slots are soon idle
        force("gristmill._data.batching.leaves", _SMALL_BYTES=0)
        force("gristmill._engine.executors.processes.worker_main", MESSAGE_BYTES=1)
        force("gristmill._engine.executors.ipc.serialize", IN_BAND_BYTES=1)
        force("gristmill._engine.executors.ipc.arena", SMALLEST_SLOT=4096, IDLE_BLOCKS=3)
    if is_wide:  # after the first range, threads read
        force(
            "gristmill._engine.tuning.waiting", WAITING_SECONDS=-math.inf, WAITING_SHARE=-math.inf
        )


NO_THREADS = ReadOptions(num_threads=0)


@dataclass(frozen=True)
class Run:
    """A way to run a pipeline: what the user may ask for, and what is forced from inside."""

    kind: str
    read: ReadOptions = NO_THREADS
    worker_count: int | None = 0
    worker_buffer_size: int = 1
    block_size: int | None = None
    window: int = _windows.WINDOW
    uses_arena: bool = False
    is_wide: bool = False
    is_hopping: bool = False
    stays_where_it_went: bool = False
    is_idle: bool = False
    """Whether the consumer is never busy: a thread that was only needed for a while ends."""

    @contextlib.contextmanager
    def forced(self) -> Iterator[list[str]]:
        """Force what cannot be asked for, while streams are opened and run; give where they go."""
        visited: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            if self.block_size is not None:
                patch.setattr(_feed, "BlockSizer", partial(FixedPace, self.block_size))
            patch.setattr(_windows, "WINDOW", self.window)
            if self.kind == "threads":  # as many as may be, after the first element, for good
                patch.setattr(_waiting, "WAITING_SHARE", -math.inf)
                patch.setattr(_waiting, "WAITING_SECONDS", -math.inf)
                patch.setattr(_tune, "FIRST_TRIAL_SECONDS", math.inf)
            if self.is_hopping:
                self._hop(patch)
            if self.is_idle:
                patch.setattr(_stream, "BUSY_SHARE", math.inf)
            _note_hops(patch, visited)
            yield visited

    def _hop(self, patch: pytest.MonkeyPatch) -> None:
        """Let a stream go from one way of running to another with every second block."""
        patch.setattr(_tune, "WINDOW_SECONDS", 1e-9)  # a rate needs some time
        patch.setattr(_tune, "WINDOW_BLOCKS", 1)
        patch.setattr(_tune, "WARM_UP_SECONDS", 0.0)
        patch.setattr(_tune, "FIRST_TRIAL_SECONDS", 0.0)
        patch.setattr(_tune, "WAITING_SHARE_FOR_TRIAL", -math.inf)
        needed = -math.inf if self.stays_where_it_went else math.inf
        patch.setattr(_tune, "MIN_SPEEDUP", needed)
        patch.setattr(_tune, "MIN_RELATIVE_SPEED", needed)
        patch.setattr(_segment, "_num_cores", lambda: 2)
        patch.setattr(_tune, "_is_ready", _wait_until_ready)
        patch.setattr(AutotunedStage, "_may_help", lambda stage, way: True)
        patch.setattr(AutotunedStage, "_close", lambda self, way: None)  # workers start only once

    def loader(self, pipeline: Pipeline, source: Any = None, **arguments: Any) -> DataLoader:
        """Give the loader that runs a pipeline this way; `forced` must be on meanwhile."""
        worker_init_fn = partial(force_worker, uses_arena=self.uses_arena, is_wide=self.is_wide)
        with warnings.catch_warnings():  # some of them give nothing at all, and are warned of
            warnings.simplefilter("ignore", GristmillWarning)
            return DataLoader(
                data_source=pipeline.source() if source is None else source,
                sampler=pipeline.sampler,
                shard_options=pipeline.shard,
                operations=pipeline.operations,
                read_options=self.read,
                worker_count=self.worker_count,
                worker_buffer_size=self.worker_buffer_size,
                worker_options=WorkerOptions(worker_init_fn=worker_init_fn),
                **arguments,
            )


def _note_hops(patch: pytest.MonkeyPatch, visited: list[str]) -> None:
    go = AutotunedStage._go

    def note_and_go(stage: AutotunedStage, way: Any) -> None:
        visited.append(str(way))
        assert len(visited) < MOST_HOPS, "the stream is begun again and again"
        go(stage, way)

    patch.setattr(AutotunedStage, "_go", note_and_go)


def _wait_until_ready(executor: Any) -> bool:
    while isinstance(executor, ProcessExecutor) and not executor.is_ready:
        executor._pool.wait(1.0)
    return True


INLINE = Run("inline")
BLOCK_SIZES = st.one_of(st.none(), st.integers(1, 12))

ahead = st.builds(
    Run, st.just("ahead"), st.just(ReadOptions(num_threads=1)), block_size=BLOCK_SIZES
)
threads = st.builds(
    Run,
    st.just("threads"),
    st.builds(ReadOptions, st.integers(2, 16), st.sampled_from([1, 2, 7, 500])),
    block_size=BLOCK_SIZES,
    window=st.integers(1, 20),
)
processes = st.builds(
    Run,
    st.just("processes"),
    st.builds(ReadOptions, st.integers(0, 4), st.sampled_from([1, 500])),
    worker_count=st.integers(1, 3),
    worker_buffer_size=st.integers(1, 3),
    block_size=BLOCK_SIZES,
    uses_arena=st.booleans(),
    is_wide=st.booleans(),
)
hopping = st.builds(
    Run,
    st.just("hopping"),
    st.builds(ReadOptions, st.integers(2, 8), st.sampled_from([1, 7, 500])),
    block_size=st.integers(1, 5),
    is_hopping=st.just(True),
    stays_where_it_went=st.booleans(),
    is_idle=st.booleans(),
)
hopping_to_processes = st.builds(
    Run,
    st.just("hopping to processes"),
    st.builds(ReadOptions, st.integers(1, 2)),
    worker_count=st.none(),
    block_size=st.integers(1, 3),
    uses_arena=st.booleans(),
    is_hopping=st.just(True),
    stays_where_it_went=st.booleans(),
    is_idle=st.booleans(),
)
cheap = st.one_of(st.just(INLINE), ahead, threads, hopping)


@dataclass(frozen=True)
class Ending:
    """How a stream ends: with nothing, or with an error."""

    kind: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    """Ours, which name the step and the record."""

    @staticmethod
    def of(error: BaseException) -> "Ending":
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("In ")]
        kind = type(error)
        return Ending(f"{kind.__module__}.{kind.__qualname__}", str(error), tuple(notes))


@dataclass(frozen=True)
class Trace:
    """All that a run gives."""

    elements: list[Any]
    states: list[bytes]
    """Before the first element, and after each."""
    ending: Ending


def trace(iterator: DataLoaderIterator) -> Trace:
    """Run an iterator to its end, and once more: it must end again as it did, where it did."""
    kept: list[Any] = []
    elements: list[Any] = []
    states = [iterator.get_state()]
    ending = take(iterator, kept, elements, states)

    assert take(iterator, again := [], [], []) == ending
    assert again == []
    assert iterator.get_state() == states[-1]
    assert list(map(exact, kept)) == elements, "an element changed after it had been given"
    return Trace(elements, states, ending)


def take(
    iterator: DataLoaderIterator, kept: list[Any], elements: list[Any], states: list[bytes]
) -> Ending:
    """Take elements up to the end, and say how it ended."""
    try:
        for element in iterator:
            kept.append(element)
            elements.append(exact(element))
            states.append(iterator.get_state())
    except Exception as error:
        return Ending.of(error)
    return Ending()


def exact(element: Any) -> Any:
    """Give what tells an element from any other: types, dtypes, shapes, bytes, writability."""
    if isinstance(element, dict):
        return type(element).__name__, [(key, exact(value)) for key, value in element.items()]
    if isinstance(element, list | tuple):
        return type(element).__name__, [exact(item) for item in element]
    if isinstance(element, np.ndarray | np.generic):
        array = np.asarray(element)
        content = list(map(exact, array.ravel())) if array.dtype.hasobject else array.tobytes()
        kind = type(element).__name__, array.dtype.str, array.dtype.descr, array.shape
        return *kind, element.flags.writeable, content
    return type(element).__name__, repr(element)
