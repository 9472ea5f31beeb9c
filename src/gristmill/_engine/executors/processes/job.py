"""Jobs: the plans that a pool of workers reads, and how they are sent to the workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.ipc.explain import explain_unsendable, explain_unsendable_value
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.ipc.serialize import dump_plan
from gristmill.errors import WorkerError
from gristmill.options import ReadOptions


@final
@dataclass(frozen=True, slots=True)
class Job:
    """A plan that workers read ranges of."""

    cut: Cut
    read: ReadOptions


def pack_jobs(
    worker_init_fn: Callable[[int, int], object] | None, jobs: Sequence[Job]
) -> PlanPayload:
    """Pickle what every worker needs into shared memory.

    Raises:
        PlanTypeError: A function or a record of the user cannot be pickled; names it.
        WorkerError: There is not enough memory.
    """
    try:
        return PlanPayload.pack(worker_init_fn, jobs)
    except OSError as error:
        raise WorkerError(
            f"The pipeline could not be copied into shared memory: {error}."
        ) from error
    except Exception as error:
        _raise_unsendable(worker_init_fn, jobs)
        raise explain_unsendable(jobs[-1].cut.plan, error) from error


def _raise_unsendable(
    worker_init_fn: Callable[[int, int], object] | None, jobs: Sequence[Job]
) -> None:
    """Raise for the first that cannot be pickled, apart from the plan of the last job."""
    try:
        dump_plan(worker_init_fn)
    except Exception as error:
        raise explain_unsendable_value("worker_init_fn", worker_init_fn, error) from error
    for job in jobs[:-1]:
        try:
            dump_plan(job.cut)
        except Exception as error:
            raise explain_unsendable(job.cut.plan, error) from error
