"""Jobs are packed once for all workers; one that cannot be pickled is named."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.job import Job, pickle_jobs, write_payload
from gristmill.errors import PlanTypeError, WorkerError
from gristmill.options import ReadOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MakeJob = Callable[..., Job]
LOCK = threading.Lock()


@pytest.fixture
def make_job(make_cut: Callable[..., Cut]) -> MakeJob:
    def make(*operations: Any, source: Any = range(20)) -> Job:
        return Job(make_cut(source, *operations), ReadOptions())

    return make


def hold_lock(number: Any, num_workers: int = 0) -> Any:
    return number, LOCK


def test_what_is_packed_is_what_a_worker_unpacks(make_job: MakeJob):
    jobs = [make_job(lambda x: x + 1), make_job()]
    payload = write_payload(pickle_jobs(max, jobs))

    _, worker_init_fn, unpacked = payload.unpack()

    assert worker_init_fn is max
    assert [(job.cut.num_read, job.read) for job in unpacked] == [
        (1, ReadOptions()),
        (0, ReadOptions()),
    ]


@pytest.mark.parametrize("deadly", [0, 1, 2])
def test_the_job_that_cannot_be_pickled_is_named(make_job: MakeJob, deadly: int):
    jobs = [make_job(hold_lock if number == deadly else abs) for number in range(3)]

    with pytest.raises(PlanTypeError, match=r"hold_lock, added at train.py:10, cannot be sent"):
        pickle_jobs(None, jobs)


def test_a_worker_init_fn_that_cannot_be_pickled_is_named(make_job: MakeJob):
    with pytest.raises(PlanTypeError, match=r"`worker_init_fn` cannot be sent .*`LOCK` is a _thr"):
        pickle_jobs(hold_lock, [make_job()])


def test_a_lack_of_memory_is_an_error_of_the_workers(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
):
    def refuse(num_bytes: int) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(
        "gristmill._engine.executors.serialization.plan_payload.create_memory", refuse
    )

    plan = pickle_jobs(None, [make_job()])

    with pytest.raises(
        WorkerError,
        match=r"^The pipeline could not be copied into shared memory: .*No space left on device\.$",
    ):
        write_payload(plan)


def test_a_long_list_is_packed_once_for_all_jobs(make_job: MakeJob):
    records = [f"train/{number:06}.jpeg" for number in range(20_000)]

    payload = write_payload(pickle_jobs(None, [make_job(source=records) for _ in range(3)]))

    assert sum(payload.sizes) < 2 * sum(map(len, records))
    _, _, jobs = payload.unpack()
    for job in jobs:
        source = job.cut.plan.parents[0].source
        assert len(source) == 20_000
        assert [source[0], source[12_345], source[19_999]] == [
            records[0],
            records[12_345],
            records[19_999],
        ]
