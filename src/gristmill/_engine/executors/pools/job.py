"""Jobs: the plans that a pool of workers reads, and how they are sent to the workers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from gristmill._base.grain.lazy_module import add_lazy_grain
from gristmill._base.trees.tree import refuse_pytrees
from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.serialization.explain import (
    explain_unsendable,
    explain_unsendable_value,
)
from gristmill._engine.executors.serialization.log_relay import RelaySettings, apply_filters
from gristmill._engine.executors.serialization.packed_sources import PackedSource, PackedSources
from gristmill._engine.executors.serialization.plan_payload import PickledPlan, PlanPayload
from gristmill._engine.executors.serialization.serialize import classes_of, dump_plan
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SourceNode
from gristmill.errors import WorkerError
from gristmill.options import ReadOptions


@final
@dataclass(frozen=True, slots=True)
class Job:
    """A plan that workers read ranges of."""

    cut: Cut
    read: ReadOptions
    policy: TuningPolicy = DEFAULT_POLICY
    """The tuning policy of the workers."""


def pickle_jobs(
    worker_init_fn: Callable[[int, int], object] | None,
    jobs: Sequence[Job],
    earlier: Iterable[PackedSource] | None = None,
) -> PickledPlan:
    """Pickle what every worker needs.

    Args:
        worker_init_fn: A function of the user, which each worker calls first.
        jobs: The jobs.
        earlier: What was packed for earlier iterators; `None` if there were none.

    Raises:
        PlanTypeError: A function or a record of the user cannot be pickled; names it.
    """
    try:
        sources = PackedSources(earlier)
        packed = [_with_packed_records(job, sources) for job in jobs]
        return PickledPlan("grain" in sys.modules, worker_init_fn, packed, lists=sources)
    except Exception as error:
        _raise_unsendable(worker_init_fn, jobs)
        explained = explain_unsendable(jobs[-1].cut.plan, error)
        raise explained from explained.__cause__  # none, if the message names the value


def write_payload(plan: PickledPlan) -> PlanPayload:
    """Copy pickled jobs into shared memory.

    Raises:
        WorkerError: There is not enough memory.
    """
    try:
        return plan.write()
    except OSError as error:
        raise WorkerError(
            f"The pipeline could not be copied into shared memory: {error}."
        ) from error


def load_jobs(
    payload: Iterator[Any],
    *,
    worker: int,
    num_workers: int,
    pytrees: Sequence[str],
    relay_settings: RelaySettings,
) -> Sequence[Job]:
    """Call the user's `worker_init_fn` in a worker, and load the plans.

    Args:
        payload: What `pickle_jobs` has pickled, loaded one by one.
        worker: The number of the worker.
        num_workers: The number of workers.
        pytrees: See `PlanPayload`.
        relay_settings: How the worker logs and warns.
    """
    if next(payload):
        add_lazy_grain()
    worker_init_fn = next(payload)  # before the plans: loading them may need what it does
    if worker_init_fn is not None:
        worker_init_fn(worker, num_workers)
    jobs: Sequence[Job] = next(payload)
    refuse_pytrees(classes_of(pytrees))
    apply_filters(relay_settings)
    return jobs


def jobs_in(payload: Iterator[Any]) -> Sequence[Job]:
    """Return the plans that `pickle_jobs` has pickled, in a process that computes nothing."""
    *_, jobs = payload  # what comes before is for the workers
    return jobs


def _with_packed_records(job: Job, sources: PackedSources) -> Job:
    """Return a job whose sources that are long lists are packed."""
    return replace(job, cut=replace(job.cut, plan=_with_packed_sources(job.cut.plan, sources)))


def _with_packed_sources(node: Node, sources: PackedSources) -> Node:
    if isinstance(node, SourceNode):
        records = sources.pack(node.source)
        return node if records is None else replace(node, source=records)
    parents = [_with_packed_sources(parent, sources) for parent in node.parents]
    is_same = all(new is old for new, old in zip(parents, node.parents, strict=True))
    return node if is_same else node.with_parents(parents)


def _raise_unsendable(
    worker_init_fn: Callable[[int, int], object] | None, jobs: Sequence[Job]
) -> None:
    """Raise for the first that cannot be pickled, apart from the plan of the last job."""
    try:
        dump_plan(worker_init_fn)
    except Exception as error:
        explained = explain_unsendable_value("worker_init_fn", worker_init_fn, error)
        raise explained from explained.__cause__
    for job in jobs[:-1]:
        try:
            dump_plan(job.cut)
        except Exception as error:
            explained = explain_unsendable(job.cut.plan, error)
            raise explained from explained.__cause__
