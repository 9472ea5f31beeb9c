"""Open a pool of Ray actors: one of this process, or one that several processes share."""

import os
from collections.abc import Hashable, Sequence

from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.ray.cluster.connection import connect
from gristmill._engine.executors.ray.pool import RayPool
from gristmill._engine.executors.ray.shared.pool import SharedPool
from gristmill._engine.executors.ray.stored_plan import store_plan
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill.options import RayOptions


def open_pool(
    plan: PickledPlan, key: Hashable, jobs: Sequence[Job], options: RayOptions
) -> WorkerPool:
    """Connect to the cluster and return a pool. No actor is started yet.

    Args:
        plan: The pickled jobs.
        key: What the keeper finds the pool by.
        jobs: The jobs.
        options: The cluster, and how actors are started, monitored and replaced.

    Raises:
        MissingExtraError: Ray is not installed.
        WorkerError: There is no cluster at the address.
    """
    ray = connect(options)
    stored = store_plan(ray, plan)
    if options.shared_pool is not None:
        return SharedPool(ray, stored, key, options, jobs)
    name = os.path.basename(jobs[0].cut.plan.site)
    return RayPool(ray, stored, key, options, name=name, policy=jobs[0].policy)
