"""The verdict on a run in words, on records made for it."""

from dataclasses import replace

import pytest

from gristmill._metrics.explanation import Change, Explanation, explain_stats
from gristmill._metrics.headspace import Headspace
from gristmill._metrics.stats import Stats, StepStats

READING = StepStats(name="reading files", elapsed_s=8.0, cpu_s=0.25, waited_s=7.75)
DECODE = StepStats(name="Map decode", elapsed_s=8.0, cpu_s=8.0)
TRANSFER = Stats(
    num_elements=100,
    elapsed_s=10.0,
    waited_s=10.0,
    steps=(StepStats(name="Map f", elapsed_s=6.0, cpu_s=6.0),),
    executor="processes",
    num_workers=2,
    busy_s=20.0,
    transfer_s=14.0,
)


def inline(*steps: StepStats) -> Stats:
    busy_s = sum(step.elapsed_s for step in steps)
    return Stats(
        num_elements=80, elapsed_s=busy_s + 2.0, waited_s=busy_s, busy_s=busy_s, steps=steps
    )


def change_of(explanation: Explanation, start: str) -> Change:
    (change,) = [one for one in explanation.changes if one.action.startswith(start)]
    return change


def test_a_step_that_computes_gets_workers_as_long_as_there_are_cores():
    explanation = explain_stats(inline(DECODE), num_cores=4)

    change = change_of(explanation, "With `worker_count=")
    assert change.action == "With `worker_count=4`"
    assert change.speedup == pytest.approx(10.0 / 2.5)
    assert change.limit == "the 4 cores"
    assert change_of(explanation, "If 'Map decode'").speedup == pytest.approx(5.0)


def test_a_step_that_waits_gets_threads():
    explanation = explain_stats(inline(READING), num_cores=4)

    change = change_of(explanation, "With")
    assert change.action == "With `read_options=ReadOptions(num_threads=4)`"
    assert (change.speedup, change.limit) == (pytest.approx(5.0), "your code")


def test_threads_that_a_loader_tries_by_itself_are_not_proposed():
    allowed = replace(inline(READING), executor="threads", num_threads=2, max_threads=4)
    explanation = explain_stats(allowed, num_cores=4)

    assert explanation.changes == ()
    assert "Up to 4 threads are allowed, and used while they are faster." in str(explanation)
    assert explain_stats(replace(allowed, max_threads=2), num_cores=4).changes


TWO_STEPS = Stats(  # measured: a map that sleeps for 4 ms, and one that computes for 1.5 ms
    num_elements=219,
    num_positions=876,
    elapsed_s=3.0,
    waited_s=2.44,
    consumer_cpu_s=0.45,
    busy_s=11.4,
    steps=(
        StepStats(
            name="Map wait",
            elapsed_s=9.72,
            cpu_s=0.03,
            waited_s=8.0,
            interpreter_wait_s=1.6,
            num_records=876,
        ),
        StepStats(name="Map compute", elapsed_s=1.42, cpu_s=1.32),
    ),
    executor="threads",
    num_threads=8,
    max_threads=16,
)


def test_workers_are_proposed_for_steps_that_wait_and_compute():
    explanation = explain_stats(TWO_STEPS, num_cores=2)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "waiting"
    (change,) = explanation.changes
    assert change.action == "With `worker_count=3`"
    assert 1.5 < change.speedup < 2.5  # measured: 2.4
    assert "share the interpreter lock" in explanation.bottleneck.remedy


def test_a_consumer_gets_workers_where_threads_share_the_interpreter():
    often = replace(TWO_STEPS, waited_s=1.4, consumer_cpu_s=1.6)

    explanation = explain_stats(often, num_cores=2)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "consumer"
    assert [change.action for change in explanation.changes] == ["With `worker_count=2`"]


def test_threads_are_proposed_if_workers_bring_no_more():
    explanation = explain_stats(replace(inline(READING), num_positions=80), num_cores=4)

    assert [change.action for change in explanation.changes] == [
        "With `read_options=ReadOptions(num_threads=4)`"
    ]


def test_steps_that_copy_get_fewer_bytes_and_no_workers():
    batch = StepStats(name="Batch(16)", elapsed_s=8.0, cpu_s=8.0)
    stats = replace(inline(batch), output_bytes=10**15)

    explanation = explain_stats(stats, num_cores=4)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "computing"
    assert "workers share the memory bandwidth" in explanation.bottleneck.remedy
    actions = [change.action for change in explanation.changes]
    assert actions == ["With half as many bytes per element", "If 'Batch(16)' took no time"]


def test_a_remedy_is_not_what_is_set_already():
    ended_inline = replace(inline(READING), max_threads=16)

    assert "ReadOptions(num_threads=16)" not in str(explain_stats(ended_inline, num_cores=2))


def test_workers_that_wait_get_more_workers_than_cores():
    stats = replace(inline(READING), executor="processes", num_workers=2, busy_s=16.0)
    stats = replace(stats, elapsed_s=4.0, waited_s=4.0)

    change = change_of(explain_stats(stats, num_cores=2), "With `worker_count=")
    assert change.action == "With `worker_count=8`"
    assert change.speedup == pytest.approx(4.0)


def test_ray_actors_are_not_limited_by_the_cores_of_this_machine():
    stats = replace(inline(DECODE), executor="ray", num_workers=4, elapsed_s=2.1, waited_s=2.0)

    loader = change_of(explain_stats(stats, num_cores=2), "With `worker_count=")
    assert loader.action == "With `worker_count=32` and as many cores in the cluster"
    assert loader.speedup == pytest.approx(8.0)
    dataset = explain_stats(stats, num_cores=2, is_dataset=True)
    assert "With `mp_prefetch(RayOptions(num_workers=32))` and as many" in str(dataset)


def test_the_wait_for_the_first_element_is_named_if_it_is_long():
    starting = replace(inline(DECODE), first_wait_s=2.0)

    assert "8.00 s of 10.0 s, of which 2.00 s for the first element;" in str(
        explain_stats(starting)
    )
    assert "first element" not in str(explain_stats(replace(starting, first_wait_s=0.5)))


def test_a_step_without_a_core_is_named():
    crowded = StepStats(name="Map decode", elapsed_s=8.0, cpu_s=3.0)

    assert "3.00 s on a core, and 5.00 s without one, because all cores were busy." in str(
        explain_stats(inline(crowded), num_cores=2)
    )


def test_a_faster_pipeline_is_worth_at_most_the_waiting():
    often, rarely = (
        Stats(num_elements=9, elapsed_s=10.0, waited_s=waited_s) for waited_s in (4.0, 0.5)
    )

    assert "brings at most 1.7x." in str(explain_stats(often))
    assert "gains little" in str(explain_stats(rarely))


def test_settings_of_a_dataset_are_named_as_its_methods():
    computing = explain_stats(inline(DECODE), num_cores=2, is_dataset=True)
    waiting = explain_stats(inline(READING), num_cores=2, is_dataset=True)

    assert "`mp_prefetch(MultiprocessingOptions(num_workers=2))`" in str(computing)
    assert "`to_iter_dataset(ReadOptions(num_threads=4))`" in str(waiting)


def test_nothing_is_proposed_that_is_set_already():
    stats = replace(inline(DECODE), executor="processes", num_workers=4, busy_s=32.0)

    assert not [one for one in explain_stats(stats, num_cores=4).changes if "With" in one.action]


def test_an_interpreter_lock_gets_workers():
    step = StepStats(name="Map f", elapsed_s=60.0, cpu_s=9.5, interpreter_wait_s=50.0)
    stats = replace(inline(step), elapsed_s=10.0, waited_s=10.0, executor="threads", num_threads=8)
    explanation = explain_stats(stats, num_cores=2)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "interpreter"
    assert change_of(explanation, "With `worker_count=2`").speedup == pytest.approx(2.0)


def test_a_step_in_order_is_worth_what_the_others_leave():
    slow = StepStats(name="Map g", elapsed_s=8.0, cpu_s=8.0, in_order_s=8.0)
    cheap = StepStats(name="Map f", elapsed_s=4.0, cpu_s=4.0)
    stats = Stats(
        num_elements=10,
        elapsed_s=8.0,
        waited_s=8.0,
        steps=(cheap, slow),
        busy_s=4.0,
        executor="processes",
        num_workers=1,
    )
    explanation = explain_stats(stats, num_cores=4)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "in order"
    assert change_of(explanation, "If 'Map g' took no time").speedup == pytest.approx(2.0)


def test_copies_are_worth_half_if_there_are_half_as_many_bytes():
    explanation = explain_stats(TRANSFER, num_cores=2)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "transfer"
    change = change_of(explanation, "With half as many bytes per element")
    assert change.speedup == pytest.approx(20.0 / 13.0)


def test_a_device_is_worth_what_half_of_the_bytes_take():
    explanation = explain_stats(replace(inline(DECODE), place_s=7.5))

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "device"
    change = change_of(explanation, "With half as many bytes per element")
    assert change.speedup == pytest.approx(10.0 / 6.25)
    assert change.limit == "placing batches on devices"


def test_other_hosts_are_named_without_a_prediction():
    explanation = explain_stats(replace(inline(DECODE), host_wait_s=7.5))

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "other hosts"
    assert explanation.changes == ()
    assert explanation.bottleneck.remedy in str(explanation)


def test_a_consumer_that_waits_now_and_then_still_gets_a_proposal():
    stats = replace(inline(DECODE), elapsed_s=20.0)
    explanation = explain_stats(stats, num_cores=4)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "consumer"
    assert change_of(explanation, "With `worker_count=1`").limit == "your code"


def test_free_data_is_estimated_from_the_time_that_was_not_waited():
    assert explain_stats(inline(DECODE)).free_data_speedup == pytest.approx(5.0)


def test_no_change_is_predicted_to_bring_more_than_free_data():
    step = StepStats(name="Map read", elapsed_s=12.0, cpu_s=0.1, waited_s=11.9)
    stats = Stats(
        num_elements=100,
        elapsed_s=10.0,
        waited_s=6.0,
        steps=(step,),
        executor="processes",
        num_workers=1,
        busy_s=12.0,
    )
    explanation = explain_stats(stats, num_cores=4)

    assert explanation.free_data_speedup == pytest.approx(2.5)
    assert [change.speedup for change in explanation.changes] == [pytest.approx(2.5)] * 2


def test_free_data_is_measured_if_the_headspace_was():
    explanation = explain_stats(inline(DECODE), headspace=Headspace(num_steps=10, elapsed_s=0.5))

    assert explanation.elements_per_s == 8.0
    assert explanation.free_data_speedup == 2.5
    assert "about 2.5x as fast, at 20.0/s: measured with one batch, 10 times" in str(explanation)


def test_the_words_of_a_verdict():
    assert str(explain_stats(inline(DECODE), num_cores=2)).splitlines() == [
        "Your code waited for data for 80% of the time: 8.00 s of 10.0 s; 80 elements, 8.00/s.",
        "Bottleneck (computing): 'Map decode' computes: 8.00 s on a core.",
        "- With `worker_count=2`, the run would be about 2.0x as fast; its limit is then the 2 "
        "cores.",
        "- If 'Map decode' took no time, the run would be about 5.0x as fast; its limit is then "
        "your code.",
        "If data were free, your code would run about 5.0x as fast: estimated from the time that "
        "it did not wait.",
    ]


def test_control_characters_in_the_name_of_a_step_are_escaped():
    hostile = replace(DECODE, name="Map \x1b[2J")

    assert "\x1b" not in str(explain_stats(inline(hostile)))


def test_nothing_measured():
    explanation = explain_stats(Stats())

    assert explanation.bottleneck is None
    assert explanation.free_data_speedup == 1.0
    assert str(explanation) == "Nothing was measured yet: take some elements first."
