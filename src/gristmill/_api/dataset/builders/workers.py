"""Builders of the node behind `mp_prefetch`: how many workers there are, and how they start."""

from collections.abc import Callable
from dataclasses import replace

from gristmill._api.dataset.base import Dataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_kind
from gristmill._plan.nodes.hints import WorkersNode
from gristmill.errors import PlanError
from gristmill.options import MultiprocessingOptions, RayOptions, WorkerOptions


def as_worker_options(
    options: WorkerOptions | None, worker_init_fn: Callable[[int, int], None] | None
) -> WorkerOptions:
    """Return the options of workers, with the function that Grain takes as an argument."""
    if options is None:
        return WorkerOptions(worker_init_fn=worker_init_fn)
    checked = as_kind("worker_options", options, WorkerOptions, remedy="Pass `WorkerOptions(...)`.")
    if worker_init_fn is None:
        return checked
    if checked.worker_init_fn is not None:
        raise PlanError(
            "`worker_init_fn` is given twice: to `mp_prefetch` and in `worker_options`. Leave one "
            "of them out."
        )
    return replace(checked, worker_init_fn=worker_init_fn)


def as_worker_count(
    options: MultiprocessingOptions | RayOptions | None, worker: WorkerOptions | None
) -> tuple[MultiprocessingOptions, WorkerOptions | None]:
    """Return how many workers to begin with, and how they are started."""
    if isinstance(options, RayOptions):
        if worker is not None:
            raise PlanError("`RayOptions` replaces `worker_options`. Leave one of them out.")
        num_workers = options.num_workers or options.min_workers
        return MultiprocessingOptions(num_workers=num_workers), options
    return MultiprocessingOptions(num_workers=10) if options is None else options, worker


def workers_node(
    dataset: Dataset,
    options: MultiprocessingOptions,
    worker: WorkerOptions,
) -> WorkersNode:
    """Return the node that allows the steps below it to run in workers."""
    return WorkersNode(site=call_site(), parent=plan_of(dataset), options=options, worker=worker)
