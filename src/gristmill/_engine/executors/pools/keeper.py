"""Pool keeper: keeps the worker pools of a loader or dataset between its iterators.

Starting workers, loading a plan and filling fresh memory take longer than many an epoch. So an
iterator that ends returns its pool to the keeper, and the next one takes it over, provided that
its workers have loaded exactly the plan that is to be run: the plan is pickled again and compared,
since a source may have been changed in the meantime.

No lock is taken, because the garbage collector may run any of this: each change of the list of idle
pools is one atomic operation.
"""

import contextlib
import importlib
import threading
import time
import weakref
from collections.abc import Hashable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeAlias, final

from gristmill._base.threads.background import Background
from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job, pickle_jobs, write_payload
from gristmill._engine.executors.processes import launcher
from gristmill._engine.executors.processes.pool import ProcessPool
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill.errors import ClosedError
from gristmill.options import RayOptions, WorkerOptions

_TRIM_TIMEOUT_S = 1.0
"""How long to wait for workers to return memory: one may still compute its last task."""

_RETURN_TIMEOUT_S = 0.2
"""How long to wait for a pool that an iterator is about to return: as long as a new one takes."""

_PoolKey: TypeAlias = tuple[int, WorkerOptions, tuple[str, ...]]
"""The number of workers, their options, and where the user wrote the plans."""


@final
class PoolKeeper:
    """The idle pools of a loader or dataset, and those that its iterators use."""

    def __init__(self, policy: TuningPolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._idle: list[_IdlePool] = []
        self._in_use = _LivePools()
        self._returning = _LivePools()
        self._returned: SimpleQueue[None] = SimpleQueue()  # its `put` needs no lock
        self._keeps = True
        weakref.finalize(self, _close_idle, self._idle)

    def take(self, jobs: Sequence[Job], *, num_workers: int, options: WorkerOptions) -> WorkerPool:
        """Return a pool whose workers have loaded some jobs, or a new one.

        Raises:
            PlanTypeError: A function or a record of the user cannot be pickled; names it.
            WorkerError: There is not enough memory.
        """
        if not isinstance(options, RayOptions):
            launcher.prepare()  # it starts while the plans are pickled
        key = (num_workers, options, tuple(job.cut.plan.site for job in jobs))
        plan = pickle_jobs(options.worker_init_fn, jobs, self._packed_sources(key))
        pool = self._take_idle(plan, key)
        if pool is None and self._wait_for_return(key):
            pool = self._take_idle(plan, key)
        if pool is None:
            if not plan.packs_lists:  # plans before it had none to pack, but this is another one
                plan = pickle_jobs(options.worker_init_fn, jobs)
            if isinstance(options, RayOptions):
                pool = _open_ray_pool(plan, key, jobs, options)
            else:
                payload = write_payload(plan)
                pool = ProcessPool(payload, key, num_workers=num_workers, options=options)
        self._in_use.add(pool)
        return pool

    def _packed_sources(self, key: Hashable) -> list[PackedSource] | None:
        """Return what was packed for earlier iterators, also for those that run.

        Returns `None` if there were none, or their workers have ended.
        """
        idle_pools = [idle.pool for idle in list(self._idle)]
        pools = [*idle_pools, *self._in_use.as_list(), *self._returning.as_list()]
        pools = [pool for pool in pools if pool.key == key]
        return [source for pool in pools for source in pool.packed_sources] if pools else None

    def _take_idle(self, plan: PickledPlan, key: _PoolKey) -> WorkerPool | None:
        for idle in [idle for idle in list(self._idle) if idle.pool.key == key]:
            if not _remove(self._idle, idle):
                continue  # it has just expired
            pool = idle.take()
            if pool.is_usable and not pool.has_lost_workers and pool.holds(plan):
                return pool
            _end(pool)
        return None

    def _wait_for_return(self, key: Hashable) -> bool:
        """Wait for an iterator that was just closed to return its pool; return whether one did.

        After a `break`, the thread of the iterator returns the pool while the next one begins.
        """
        deadline = time.monotonic() + _RETURN_TIMEOUT_S
        while any(
            pool.key == key and pool.is_ending
            for pools in (self._in_use, self._returning)
            for pool in pools.as_list()
        ):
            try:
                self._returned.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return False
            if any(idle.pool.key == key for idle in list(self._idle)):
                return True
        return bool(self._idle)

    def put_back(self, pool: WorkerPool, *, keep: bool = True) -> None:
        """Keep a pool for the next iterator, or close it if it is not worth keeping."""
        self._returning.add(pool)
        self._in_use.discard(pool)
        self._put_back(pool, keep=keep)
        self._returning.discard(pool)
        self._returned.put(None)

    def _put_back(self, pool: WorkerPool, *, keep: bool) -> None:
        timeout_s = pool.options.idle_timeout_s
        is_exiting = not threading.main_thread().is_alive()  # no thread may be started any more
        is_worth_it = keep and self._keeps and pool.is_usable and timeout_s > 0
        if is_exiting or not is_worth_it:
            _end(pool)
            return
        for other in [idle for idle in list(self._idle) if idle.pool.key == pool.key]:
            if _remove(self._idle, other):  # of an iterator that ran at the same time
                other.expire()
        self._keep(pool, timeout_s)
        if not self._keeps:  # since a moment ago
            _close_idle(self._idle)

    def _keep(self, pool: WorkerPool, timeout_s: float) -> None:
        idle = _IdlePool(pool, self._idle, timeout_s, trim_after_s=self._policy.trim_after_s)
        self._idle.append(idle)
        try:
            idle.watch()
        except (RuntimeError, MemoryError):  # the system allows no more threads
            if _remove(self._idle, idle):
                _end(pool)

    def hold(self, pool: WorkerPool, *, timeout_s: float) -> None:
        """Keep a pool for the iterator that uses it, for some time; `take_back` returns it.

        Another iterator may get it if that one does not take it back.
        """
        self._in_use.discard(pool)
        if pool.is_usable:
            self._keep(pool, timeout_s)
        else:
            _end(pool)

    def take_back(self, pool: WorkerPool) -> bool:
        """Take a pool that is held; return whether it is still there."""
        for idle in list(self._idle):
            if idle.pool is pool and _remove(self._idle, idle):
                idle.take()
                self._in_use.add(pool)
                return True
        return False

    def serve(self, owner: object) -> Self:
        """Retire when the loader or dataset that the pools belong to is garbage collected."""
        weakref.finalize(owner, self.retire)
        return self

    def __reduce__(self) -> "tuple[type[PoolKeeper], tuple[()]]":
        return PoolKeeper, ()  # a copy of a loader has its own workers

    def retire(self) -> None:
        """Close the idle pools, and from now on each pool that an iterator returns."""
        self._keeps = False
        _close_idle(self._idle)

    def close(self) -> None:
        """Close all pools. Iterators that still use one raise `ClosedError`."""
        _close_idle(self._idle)
        for pool in self._in_use.as_list():
            pool.close()


@final
class _LivePools:
    """A set of pools that keeps none of them alive, and that threads may change at any time.

    Python's `WeakSet` cannot be iterated over while another thread adds to it.
    """

    def __init__(self) -> None:
        self._pools: weakref.WeakValueDictionary[int, WorkerPool] = weakref.WeakValueDictionary()

    def add(self, pool: WorkerPool) -> None:
        """Add a pool."""
        self._pools[id(pool)] = pool

    def discard(self, pool: WorkerPool) -> None:
        """Remove a pool, if it is there."""
        self._pools.pop(id(pool), None)

    def as_list(self) -> list[WorkerPool]:
        """Return the pools of this moment."""
        references = self._pools.valuerefs()
        return [pool for reference in references if (pool := reference()) is not None]


@final
class _IdlePool:
    """A pool that no iterator uses, and a thread that waits for its time limit.

    Only the thread disposes of the pool, unless `take` gets it first: the caller of `expire` may
    hold any lock, and may even be that thread, in a garbage collection. So it waits for nothing but
    the death of the workers.
    """

    def __init__(
        self, pool: WorkerPool, home: "list[_IdlePool]", timeout_s: float, *, trim_after_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._trim_after_s = trim_after_s
        self.pool = pool
        self._home = home
        self._is_wanted = False
        self._is_expired = False
        self._thread = Background(self._watch, name="gristmill-idle-workers")

    def watch(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self) -> WorkerPool:
        """End the thread, and return the pool. The caller has removed this from the list."""
        self._is_wanted = True
        self.pool.wake()
        if self._thread.ident is not None:  # else it will see at its start that it is not needed
            self._thread.join()
        return self.pool

    def expire(self) -> None:
        """Kill the workers. The caller has removed this from the list."""
        self._is_expired = True
        self.pool.close()

    def _watch(self) -> None:
        pool = self.pool
        # Closed by `expire` while a worker was replaced, or a late reply finds no descriptor left.
        with contextlib.suppress(ClosedError, OSError, MemoryError):
            self._wait_for_timeout()
        if self._is_expired:
            pool.dispose()
        elif not self._is_wanted and _remove(self._home, self):
            _end(pool)

    def _wait_for_timeout(self) -> None:
        timeout_s, trim_after_s = self._timeout_s, self._trim_after_s
        self._sleep(min(trim_after_s, timeout_s))
        if timeout_s > trim_after_s and not self._is_woken:
            self.pool.trim_memory(_TRIM_TIMEOUT_S)
            self._sleep(timeout_s - trim_after_s)

    @property
    def _is_woken(self) -> bool:
        return self._is_wanted or self._is_expired

    def _sleep(self, seconds: float) -> None:
        """Wait until the time is over, or the pool is wanted or expires."""
        deadline = time.monotonic() + seconds
        while not self._is_woken and (remaining_s := deadline - time.monotonic()) > 0:
            self.pool.wait_until_woken(remaining_s)  # the last iterator's `wake` may be left


def _open_ray_pool(
    plan: PickledPlan, key: _PoolKey, jobs: Sequence[Job], options: RayOptions
) -> WorkerPool:
    # Imported only now: most programs have no cluster, and `import gristmill` has to be fast.
    module: Any = importlib.import_module("gristmill._engine.executors.ray.open_pool")
    return module.open_pool(plan, key, jobs, options)


def _remove(idle_pools: list[_IdlePool], idle: _IdlePool) -> bool:
    """Remove an idle pool from a list; return whether it was there."""
    with contextlib.suppress(ValueError):
        idle_pools.remove(idle)
        return True
    return False


def _close_idle(idle_pools: list[_IdlePool]) -> None:
    while idle_pools:
        with contextlib.suppress(IndexError):  # it has just expired
            idle_pools.pop().expire()


def _end(pool: WorkerPool) -> None:
    pool.close()
    pool.dispose()
