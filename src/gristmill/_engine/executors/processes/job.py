"""Jobs: the plans that a pool of workers reads, and how they are sent to the workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.ipc.explain import explain_unsendable, explain_unsendable_value
from gristmill._engine.executors.ipc.packed_records import PackedRecords, pack_records
from gristmill._engine.executors.ipc.plan_payload import PickledPlan, PlanPayload
from gristmill._engine.executors.ipc.serialize import dump_plan
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
    worker_init_fn: Callable[[int, int], object] | None, jobs: Sequence[Job]
) -> PickledPlan:
    """Pickle what every worker needs.

    Raises:
        PlanTypeError: A function or a record of the user cannot be pickled; names it.
    """
    try:
        packed: _PackedSources = {}
        return PickledPlan(worker_init_fn, [_with_packed_records(job, packed) for job in jobs])
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


_PackedSources: TypeAlias = dict[int, PackedRecords | None]
"""Sources by `id`, so that one that several nodes read is packed once."""


def _with_packed_records(job: Job, packed: _PackedSources) -> Job:
    """Return a job whose sources that are long lists are packed."""
    return replace(job, cut=replace(job.cut, plan=_with_packed_sources(job.cut.plan, packed)))


def _with_packed_sources(node: Node, packed: _PackedSources) -> Node:
    if isinstance(node, SourceNode):
        key = id(node.source)
        if key not in packed:
            packed[key] = pack_records(node.source)
        records = packed[key]
        return node if records is None else replace(node, source=records)
    parents = [_with_packed_sources(parent, packed) for parent in node.parents]
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
