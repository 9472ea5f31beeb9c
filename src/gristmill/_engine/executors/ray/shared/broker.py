"""Broker of a shared pool: an actor that lets workers compute each block once for all readers.

It owns the workers, and the references to the blocks that some reader still needs. The blocks
themselves go from the worker's node to the reader's, not through the broker. It ends when it has
had no reader for some time.
"""

import math
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from gristmill._base.extras import load_extra
from gristmill._engine.executors.pools.job import Job, jobs_in
from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.pools.window import duplicate_after_s, next_typical_s
from gristmill._engine.executors.ray.pool import RayPool
from gristmill._engine.executors.ray.reply import RemoteReply
from gristmill._engine.executors.ray.shared.blocks import BlockKey, SharedBlocks
from gristmill._engine.executors.ray.stored_plan import StoredPlan
from gristmill._engine.executors.serialization.remote_error import dump_error
from gristmill._engine.executors.serialization.serialize import load_each
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._metrics.counters import Counters
from gristmill._metrics.stats import WorkerStats
from gristmill.options import RayOptions

READER_TIMEOUT_S = 15.0
"""A reader that has sent no heartbeat for this long is gone."""

VANISHED_TIMEOUT_S = 5.0
"""The pool ends after this time if the last reader has gone without detaching, as programs do that
are killed. It may have been suspended only."""

_POLL_S = 0.2


@final
@dataclass(frozen=True, kw_only=True)
class Attachment:
    """What a reader receives when it joins."""

    num_workers: int
    grid: int
    """Blocks end at multiples of this many positions, so that readers request the same ones."""
    class_names: dict[str, tuple[str, str]]
    """See `names_of`."""


@final
@dataclass(frozen=True, kw_only=True)
class PoolStatus:
    """What a reader receives in reply to each heartbeat."""

    num_workers: int
    workers: tuple[WorkerStats, ...]


class SharedPart(NamedTuple):
    """What a reader gets of a block, or of a part of it, if it was split."""

    positions: range
    header: bytes
    """A pickled `BlockHeader`."""
    data: list[Any]
    """A reference to the buffers. In a list, Ray does not fetch them."""


@final
@dataclass(kw_only=True)
class _Reader:
    """A reader, and when it last sent a heartbeat."""

    seen_at: float
    waiting_share: float = 0.0
    """The share of the last second or so for which it waited."""


@final
@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the first reader sends: the plans, and how to compute them."""

    options: RayOptions
    pytrees: Sequence[str]
    class_names: dict[str, tuple[str, str]]
    path: Sequence[str]
    """Where the first reader finds modules."""


@final
class Broker:
    """Serves the blocks of one pipeline to several readers.

    Args:
        description: What the pipeline reads and does, as JSON.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._lock = threading.Lock()
        self._pool: RayPool | None = None
        self._blocks = SharedBlocks(0)
        self._readers: dict[str, _Reader] = {}
        self._opening: Opening | None = None
        self._idle_since = time.monotonic()
        self._has_vanished = False
        """Whether the last reader has gone without detaching."""
        self._grid = 0
        self._policy = DEFAULT_POLICY
        self._typical_s: float | None = None
        """Seconds that a block usually takes, once one was computed."""

    def attach(
        self, reader: str, description: str, payload: list[Any], opening: bytes
    ) -> "bytes | str":
        """Add a reader, and start the workers if it is the first.

        Returns:
            A pickled `Attachment`, or the description of another pipeline that the pool serves.
        """
        if description != self._description:
            return self._description
        with self._lock:
            if self._pool is None:
                self._open(payload, pickle.loads(opening))
            self._blocks.add_reader(reader)
            self._readers[reader] = _Reader(seen_at=time.monotonic())
            pool = self._pool
            assert pool is not None
            assert self._opening is not None
            return pickle.dumps(
                Attachment(
                    num_workers=pool.num_workers,
                    grid=self._grid,
                    class_names=self._opening.class_names,
                )
            )

    def _open(self, payload: list[Any], opening: Opening) -> None:
        ray: Any = load_extra("ray", extra="ray", wanted_by="a shared pool")
        sys.path.extend(entry for entry in opening.path if entry not in sys.path)
        chunks = ray.get(payload[0])
        jobs = jobs_in(load_each(chunks[0], [chunk.copy() for chunk in chunks[1:]]))
        self._opening = opening
        self._grid = max(1, jobs[0].policy.shared_block_records // _records_of(jobs))
        self._blocks = SharedBlocks(opening.options.shared_pool_bytes)
        # An object dies with the process that put it there, so the broker has its own.
        plan = StoredPlan(payload=ray.put(chunks), pytrees=opening.pytrees)
        self._pool = RayPool(
            ray,
            plan,
            None,
            replace(opening.options, shared_pool=None),
            name=f"pool {opening.options.shared_pool}",
            policy=jobs[0].policy,
            keeps_remote=True,
        )
        self._pool.begin_session(jobs, Counters())
        self._policy = jobs[0].policy
        threading.Thread(target=self._serve, args=(ray, self._pool), daemon=True).start()

    def read(self, reader: str, job: int, start: int, stop: int) -> Sequence[Any]:
        """Return the parts of a block, computed now or before, for this reader or another one.

        Returns:
            A `SharedPart` for each part; or a serialized error, which ends the block.
        """
        with self._lock:
            if reader not in self._readers:  # it was silent for some time, but is not gone
                self._readers[reader] = _Reader(seen_at=time.monotonic())
            block = self._blocks.request(reader, BlockKey(job, start, stop))
            if self._pool is not None:
                self._pool.wake()
        block.is_ready.wait()
        assert block.parts is not None
        return block.parts

    def forget(self, job: int, start: int, stop: int) -> None:
        """Compute a block again when it is requested next: its memory was lost."""
        with self._lock:
            self._blocks.forget(BlockKey(job, start, stop))

    def beat(self, reader: str, waiting_share: float) -> bytes:
        """Note that a reader is alive, and for what share of the time it waited.

        Returns:
            A pickled `PoolStatus`.
        """
        with self._lock:
            self._readers[reader] = _Reader(seen_at=time.monotonic(), waiting_share=waiting_share)
            pool = self._pool
            assert pool is not None
            return pickle.dumps(
                PoolStatus(num_workers=pool.num_workers, workers=pool.describe_workers())
            )

    def detach(self, reader: str) -> None:
        """Remove a reader."""
        with self._lock:
            self._readers.pop(reader, None)
            self._blocks.remove_reader(reader)

    def describe(self) -> dict[str, Any]:
        """Return what the pool has done so far and holds now, by name."""
        with self._lock:
            return {
                "num_computed": self._blocks.num_computed,
                "num_bytes": self._blocks.num_bytes,
                "num_readers": len(self._blocks.readers),
                "workers": () if self._pool is None else self._pool.describe_workers(),
            }

    # The thread that uses the pool

    def _serve(self, ray: Any, pool: RayPool) -> None:
        try:
            self._serve_readers(pool)
        finally:  # after a mistake of ours, too: readers would wait forever
            pool.close()
            ray.kill(ray.get_runtime_context().current_actor)

    def _serve_readers(self, pool: RayPool) -> None:
        pool.start()
        looked_at = time.monotonic()
        while not self._is_abandoned(pool.options.idle_timeout_s):
            with self._lock:
                for block in self._blocks.unsubmitted():
                    positions = range(block.key.start, block.key.stop)
                    block.task = pool.scheduler.submit(positions, job=block.key.job)
            pool.assign(max_per_worker=2)
            pool.wait(_POLL_S)
            with self._lock:
                self._collect(pool)
                shares = [reader.waiting_share for reader in self._readers.values()]
            now = time.monotonic()
            pool.add_wait(max(shares, default=0.0) * (now - looked_at))
            looked_at = now

    def _collect(self, pool: RayPool) -> None:
        failure = pool.take_failure()
        error = None if failure is None else dump_error(failure, where="In the shared pool")
        for block in self._blocks.pending():
            task = block.task
            assert task is not None
            if error is not None:
                pool.scheduler.cancel([task])
                self._blocks.fail(block, error)
            elif task.is_done:
                self._blocks.complete(block, list(_parts_of(task)))
                self._note_seconds(task)
            elif self._is_late(pool.scheduler.seconds_on(task)):
                pool.duplicate(task)
        if error is not None:
            pool.start()

    def _note_seconds(self, task: Task) -> None:
        if isinstance(task.reply, RemoteReply):
            seconds = task.reply.seconds
            before = seconds if self._typical_s is None else self._typical_s
            self._typical_s = next_typical_s(before, seconds, self._policy)

    def _is_late(self, seconds: float) -> bool:
        """Return whether another worker should compute a block, too.

        Not before one was computed: blocks have a fixed number of records, which may be slow.
        """
        typical_s = self._typical_s
        return typical_s is not None and seconds > duplicate_after_s(typical_s, self._policy)

    def _is_abandoned(self, idle_timeout_s: float) -> bool:
        """Return whether there was no reader for so long that the pool ends."""
        now = time.monotonic()
        with self._lock:
            for name, reader in list(self._readers.items()):
                if now - reader.seen_at > READER_TIMEOUT_S:
                    del self._readers[name]
                    self._blocks.remove_reader(name)
                    self._has_vanished = True
            if self._readers:
                self._idle_since, self._has_vanished = now, False
            limit_s = min(idle_timeout_s, VANISHED_TIMEOUT_S if self._has_vanished else math.inf)
        return now - self._idle_since > limit_s


def _records_of(jobs: Sequence[Job]) -> int:
    return max(job.cut.base.records_per_position for job in jobs)


def _parts_of(task: Task) -> Sequence[Any]:
    """Return what readers get of a task: of its subtasks, if it was split, up to an error."""
    if task.error is not None:
        return [dump_error(task.error, where="In the shared pool")]
    if isinstance(task.reply, RemoteReply):
        return [SharedPart(task.positions, task.reply.encoded, [task.reply.data])]
    parts: list[Any] = []
    for subtask in task.subtasks:
        parts.extend(_parts_of(subtask))
        if subtask.error is not None:
            break
    return parts
