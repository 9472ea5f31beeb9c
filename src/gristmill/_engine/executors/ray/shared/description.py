"""Descriptions of pipelines, by which a shared pool knows whether a reader has the same one."""

import json
from collections.abc import Sequence
from typing import Any

from gristmill._engine.executors.pools.job import Job
from gristmill._plan.describe import describe
from gristmill._plan.fingerprint import fingerprint


def describe_jobs(jobs: Sequence[Job]) -> str:
    """Return what distinguishes the blocks of some jobs from those of others, as JSON."""
    return json.dumps([_describe(job) for job in jobs], sort_keys=True)


def _describe(job: Job) -> dict[str, Any]:
    cut = job.cut
    described = {**describe(cut.plan), "num_read": cut.num_read, "skips_errors": cut.skips_errors}
    return {**described, "fingerprint": fingerprint(cut.plan)}


def difference(theirs: str, ours: str) -> str:
    """Return how the descriptions of two lists of jobs differ."""
    plans = [json.loads(described) for described in (theirs, ours)]
    for plan in [job for jobs in plans for job in jobs]:
        del plan["fingerprint"]
    if plans[0] == plans[1]:
        return (
            "its steps have the same names, but a function, the value of an argument, the shard or "
            "the content of the source differs"
        )
    described = [json.dumps(jobs, sort_keys=True) for jobs in plans]
    return f"{described[0]}. This one is {described[1]}"
