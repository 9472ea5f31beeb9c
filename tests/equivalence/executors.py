"""All the ways to execute one pipeline, and what a run returns, recorded to the bit."""

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import strategies as st

import tests.properties.pipelines
import tests.properties.trees
from gristmill import DataLoader, DataLoaderIterator, RayOptions, ReadOptions, WorkerOptions
from gristmill._data.batching import stack
from gristmill._engine.access import records as _records
from gristmill.errors import GristmillWarning
from tests.policies import (
    EAGER,
    TRIES_AT_ONCE,
    TuningPolicy,
    fixed_blocks,
    recorded_strategies,
    with_policy,
)
from tests.properties.pipelines import Pipeline


def by_value(module: str) -> None:
    """Send what is defined in a module of the tests to the workers, who cannot import it.

    Those that can be imported would bring hypothesis along, which takes them half a second.
    """
    cloudpickle.register_pickle_by_value(sys.modules[module])


for module in (__name__, tests.properties.pipelines.__name__, tests.properties.trees.__name__):
    by_value(module)


MOST_HOPS = 500
"""More than any stream here has elements, to detect a livelock."""

ALWAYS_WAITS: dict[str, float] = {"waiting_share": -math.inf, "min_waiting_s": -math.inf}
"""Every block counts as waiting."""


def stack_all_in_slots(number: int, num_workers: int) -> None:
    """In a worker: send the smallest batches as large ones are sent."""
    setattr(stack, "_SMALL_BYTES", 0)  # noqa: B010 - it is private


NO_THREADS = ReadOptions(num_threads=0)


@dataclass(frozen=True)
class Run:
    """A way to execute a pipeline: the user's options, and another tuning policy."""

    kind: str
    read: ReadOptions = NO_THREADS
    worker_count: int | None = 0
    worker_buffer_size: int = 1
    block_size: int | None = None
    window: int = _records.WINDOW
    uses_arena: bool = False
    is_wide: bool = False
    is_hopping: bool = False
    stays_where_it_went: bool = False
    ray: RayOptions | None = None
    """Whether the workers are actors on a Ray cluster, and which."""
    is_idle: bool = False
    """Whether the consumer is never busy: a thread that was only needed for a while ends.
    Otherwise it always is, so that a thread prefetches from the start."""

    @property
    def policy(self) -> TuningPolicy:
        """The policy of the stream, in this process and in workers."""
        policy = TuningPolicy()
        if self.kind == "threads":  # as many as allowed, from the first element on
            never: dict[str, float] = {"first_trial_s": math.inf, "quick_trial_s": math.inf}
            policy = replace(policy, **ALWAYS_WAITS, **never)
        if self.is_hopping:  # another strategy with every second block
            needed = -math.inf if self.stays_where_it_went else math.inf
            policy = replace(TRIES_AT_ONCE, min_speedup=needed, min_relative_speed=needed)
        if self.uses_arena:  # small arrays are sent as large ones are, and slots are soon idle
            policy = replace(policy, message_bytes=1, in_band_bytes=1)
            policy = replace(policy, min_slot_bytes=4096, slot_idle_blocks=3)
        if self.is_wide:  # in a worker, threads read after the first range
            policy = replace(policy, **ALWAYS_WAITS)
        policy = replace(
            policy,
            busy_share=math.inf if self.is_idle else EAGER.busy_share,
            stop_after_blocks=0,
            max_tried_workers=2,
        )
        return policy if self.block_size is None else fixed_blocks(self.block_size, policy)

    @contextlib.contextmanager
    def forced(self) -> Iterator[list[str]]:
        """Force what no option or policy sets, and return the strategies that streams run on."""
        with pytest.MonkeyPatch.context() as patch, recorded_strategies(MOST_HOPS) as visited:
            patch.setattr(_records, "WINDOW", self.window)
            yield visited

    def loader(self, pipeline: Pipeline, source: Any = None, **arguments: Any) -> DataLoader:
        """Return the loader that executes a pipeline this way, within `forced`."""
        worker_init_fn = stack_all_in_slots if self.uses_arena else None
        with warnings.catch_warnings():  # some have no elements at all, which warns
            warnings.simplefilter("ignore", GristmillWarning)
            loader = DataLoader(
                data_source=pipeline.source() if source is None else source,
                sampler=pipeline.sampler,
                shard_options=pipeline.shard,
                operations=pipeline.operations,
                read_options=self.read,
                worker_count=self.worker_count,
                worker_buffer_size=self.worker_buffer_size,
                worker_options=replace(self.ray or WorkerOptions(), worker_init_fn=worker_init_fn),
                **arguments,
            )
        return with_policy(loader, self.policy)


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
    """All that a run yields."""

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
    """Take elements up to the end, and report how it ended."""
    try:
        for element in iterator:
            kept.append(element)
            elements.append(exact(element))
            states.append(iterator.get_state())
    except Exception as error:
        return Ending.of(error)
    return Ending()


def exact(element: Any) -> Any:
    """Return what distinguishes an element: types, dtypes, shapes, bytes, writability."""
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
