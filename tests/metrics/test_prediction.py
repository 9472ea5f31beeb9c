"""How long a run would take with other settings: the arithmetic, on records made for it."""

import math
from dataclasses import replace

import pytest

from gristmill._metrics.prediction import (
    Workload,
    num_threads_in_use,
    predict_present,
    work_of,
)
from gristmill._metrics.stats import Stats, StepStats

WORK = Workload(consumer_s=1.0, in_order_s=0.5, cpu_s=12.0, waited_s=0.0)
WAITS = Workload(consumer_s=0.5, in_order_s=0.0, cpu_s=1.0, waited_s=31.0)


@pytest.mark.parametrize(
    ("work", "workers", "threads", "cores", "elapsed_s", "limit"),
    [
        (WORK, 1, 1, 8, 12.0, "reads"),
        (WORK, 4, 1, 8, 3.0, "reads"),
        (WORK, 8, 1, 4, 13.5 / 4, "cores"),
        (WORK, 0, 16, 8, 12.0, "interpreter"),
        (replace(WORK, is_lock_free=True), 0, 16, 9, 1.5, "cores"),
        (replace(WORK, consumer_s=9.0), 8, 1, 32, 9.0, "consumer"),
        (replace(WORK, in_order_s=9.0), 8, 1, 32, 9.0, "in order"),
        (WAITS, 0, 16, 2, 2.0, "reads"),
        (WAITS, 2, 8, 2, 2.0, "reads"),
    ],
)
def test_the_slowest_part_determines_the_time(
    work: Workload, workers: int, threads: int, cores: int, elapsed_s: float, limit: str
):
    found = work.predict(num_workers=workers, num_threads=threads, num_cores=cores)

    assert found.elapsed_s == pytest.approx(elapsed_s)
    if elapsed_s != 12.0 or threads > 1:  # one thread of one worker is two equal limits
        assert found.limit == limit


def test_no_more_workers_are_proposed_than_help():
    best = replace(WORK, consumer_s=3.0).best_workers(num_threads=1, num_cores=16)

    assert (best.num_workers, best.limit) == (4, "consumer")


def test_no_more_workers_are_proposed_than_there_are_cores():
    assert WORK.best_workers(num_threads=1, num_cores=2).num_workers == 2


def test_no_more_threads_are_proposed_than_help():
    best = WAITS.best_threads(num_workers=0, num_cores=2)

    assert (best.num_threads, best.limit) == (32, "reads")


def test_handing_over_blocks_limits_many_threads():
    """16,000 records that wait for 2 ms each: as measured, 64 threads are no faster than 20."""
    work = replace(WAITS, num_records=16_000, num_positions=16_000)

    best = work.best_threads(num_workers=0, num_cores=2)
    assert (best.num_threads, best.limit) == (16, "interpreter")
    assert best.elapsed_s == pytest.approx(1.0 + 1.92)


def test_waits_limit_many_threads_also_if_many_are_in_a_block():
    """80,000 records that wait for 4 ms each, 8 in a batch of a dataset: 64 threads are as fast as
    57, as measured."""
    work = replace(WAITS, waited_s=320.0, num_records=80_000, num_positions=10_000)

    several, many = (
        work.predict(num_workers=0, num_threads=number, num_cores=2) for number in (16, 64)
    )
    assert several.elapsed_s / many.elapsed_s == pytest.approx(321 / 16 / (1 + 5.6 + 0.5))


def test_a_consumer_that_computes_shares_the_interpreter_with_threads_only():
    work = replace(WORK, consumer_s=6.0, consumer_cpu_s=6.0)

    threads = work.predict(num_workers=0, num_threads=4, num_cores=8)
    workers = work.predict(num_workers=4, num_threads=1, num_cores=8)
    assert (threads.elapsed_s, threads.limit) == (18.0, "interpreter")
    assert (workers.elapsed_s, workers.limit) == (6.0, "consumer")


def test_copies_take_as_long_with_any_number_of_workers():
    steps = (StepStats(name="Batch(16)", elapsed_s=12.0, cpu_s=8.0),)
    stats = Stats(num_elements=1, elapsed_s=12.0, waited_s=12.0, steps=steps, output_bytes=60)
    some, most = (work_of(stats, 8, copy_bytes_per_s=rate) for rate in (30.0, 10.0))

    assert (some.copied_s, some.is_mostly_copying) == (3.0, False)
    assert (most.copied_s, most.is_mostly_copying) == (12.0, True)
    assert some.predict(num_workers=8, num_threads=1, num_cores=8).elapsed_s == 3.0
    assert most.predict(num_workers=8, num_threads=1, num_cores=8).limit == "memory"


def test_actors_on_other_machines_do_not_share_the_memory():
    work = replace(WORK, copied_s=12.0, is_remote=True)
    assert work.predict(num_workers=4, num_threads=1, num_cores=8).elapsed_s == 3.0


def test_records_that_are_read_in_no_time_share_a_block_that_is_handed_over():
    many, few = (
        replace(WAITS, num_records=number, num_positions=number) for number in (10**9, 21_333)
    )

    assert [
        work.predict(num_workers=0, num_threads=64, num_cores=2).elapsed_s for work in (many, few)
    ] == [
        pytest.approx(3.56, rel=1e-3),
        pytest.approx(3.56, rel=1e-3),
    ]


def test_more_workers_than_cores_are_proposed_only_if_they_wait():
    assert WAITS.best_workers(num_threads=1, num_cores=2).num_workers == 8
    assert replace(WORK, cpu_s=32.0).best_workers(num_threads=1, num_cores=2).num_workers == 2


def test_the_work_of_a_run_is_divided_at_the_cut():
    steps = (
        StepStats(name="reading", elapsed_s=6.0, cpu_s=1.0, waited_s=5.0),
        StepStats(name="Map f", elapsed_s=4.0, cpu_s=4.0, in_order_s=4.0),
        StepStats(name="Map g", elapsed_s=2.0, cpu_s=2.0, in_order_s=1.0),
    )
    stats = Stats(num_elements=1, elapsed_s=13.0, waited_s=12.0, steps=steps)

    assert work_of(stats, 8) == Workload(consumer_s=1.0, in_order_s=5.0, cpu_s=2.0, waited_s=5.0)


def test_cores_that_other_programs_have_are_missing_with_any_setting():
    steps = (StepStats(name="Map f", elapsed_s=10.0, cpu_s=4.0),)
    stats = Stats(num_elements=1, elapsed_s=10.0, waited_s=10.0, steps=steps)

    assert work_of(stats, 4).cpu_s == 10.0
    assert work_of(replace(stats, executor="processes", num_workers=8), 4).cpu_s == 4.0


def test_steps_that_use_more_than_one_core_in_one_process_release_the_lock():
    steps = (StepStats(name="Map f", elapsed_s=20.0, cpu_s=20.0),)
    stats = Stats(num_elements=1, elapsed_s=10.0, waited_s=10.0, steps=steps, num_threads=4)

    assert work_of(stats, 4).is_lock_free
    assert not work_of(replace(stats, num_workers=2), 4).is_lock_free


def test_one_thread_does_one_thing_after_the_other():
    assert predict_present(WORK, Stats(), 8).elapsed_s == 13.5


def test_the_threads_of_workers_are_estimated_from_how_much_they_did_at_once():
    steps = (StepStats(name="reading", elapsed_s=160.0, waited_s=160.0),)
    stats = Stats(num_elements=1, elapsed_s=10.0, steps=steps, num_workers=2)

    assert num_threads_in_use(stats) == 8
    assert num_threads_in_use(replace(stats, num_workers=0, num_threads=3)) == 3


def test_a_worker_uses_no_more_threads_than_a_block_has_records():
    work = Workload(consumer_s=0.0, in_order_s=0.0, cpu_s=0.0, waited_s=64.0, records_per_block=4.0)

    assert work.best_threads(num_workers=1, num_cores=2).num_threads == 4
    assert work.predict(num_workers=1, num_threads=64, num_cores=2).elapsed_s == 16.0
    assert work.predict(num_workers=0, num_threads=64, num_cores=2).elapsed_s == 1.0


def test_the_records_of_a_block_follow_from_the_statistics():
    stats = Stats(num_elements=20, num_blocks=10, num_positions=80, num_workers=1)

    assert work_of(stats, 2).records_per_block == 8.0
    assert work_of(replace(stats, num_workers=0), 2).records_per_block == 4.0  # of an element
    assert math.isinf(work_of(replace(stats, num_positions=0), 2).records_per_block)
