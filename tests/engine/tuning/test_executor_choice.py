"""Which strategy is chosen for synthetic workloads, in a simulator with a fake clock."""

import math
from dataclasses import replace

import pytest

from gristmill._engine.tuning.executor_choice import (
    after_probe,
    begin_trial,
    first_choice,
    is_conclusive,
    judge,
    rule_out,
)
from gristmill._engine.tuning.measure import BlockStats
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import EndTrial, ExecutorChoice, Speed, Strategy, Try
from gristmill._engine.tuning.window import (
    MeasuringWindow,
    add_block,
    next_window,
    window_after_switch,
)
from tests.engine.tuning.simulator import (
    INLINE,
    PROCESSES,
    THREADS,
    Cost,
    Simulator,
    Workload,
    mean,
    run_fixed,
)

POLICY = TuningPolicy()


def steady(**arguments: float) -> Workload:
    """Return a workload whose elements all take the same."""
    consumer_s = arguments.pop("consumer_s", 0.0)
    cost = Cost(**arguments)
    return Workload(cost=lambda positions: cost, consumer_s=consumer_s)


def changing(first: Cost, then: Cost, at: int) -> Workload:
    """Return a workload whose elements take something else starting at a position."""

    def cost(positions: range) -> Cost:
        share = max(0, positions.stop - max(at, positions.start)) / len(positions)
        return mean(first, then, share)

    return Workload(cost=cost)


def bursts(usual: Cost, rare: Cost, *, every: int) -> Workload:
    """Return a workload of which each element at a multiple of `every` takes something else."""

    def cost(positions: range) -> Cost:
        count = -(-positions.stop // every) - -(-positions.start // every)
        return mean(usual, rare, count / len(positions))

    return Workload(cost=cost)


def long_bursts(usual: Cost, rare: Cost, *, every: int, length: int) -> Workload:
    """Return a workload of which, after `every` elements each, the first `length` are different."""

    def num_rare(position: int) -> int:
        cycle, rest = divmod(position, every)
        return cycle * length + min(rest, length)

    def cost(positions: range) -> Cost:
        count = num_rare(positions.stop) - num_rare(positions.start)
        return mean(usual, rare, count / len(positions))

    return Workload(cost=cost)


COLUMNS = Cost(cpu_s=2e-7, thread_factor=15)
"""Records of a table in memory: fast as columns, slow one by one."""
COLD = Cost(cpu_s=1e-5, wait_s=0.005)
WARM = Cost(cpu_s=2e-5, thread_factor=2)
FAST = Cost(cpu_s=1e-5)
WAITING = Cost(cpu_s=1e-5, wait_s=5e-3)

MATRIX = {
    "tiny records in memory": steady(cpu_s=1e-6, thread_factor=3),
    "columns": Workload(cost=lambda positions: COLUMNS),
    "map that holds the lock": steady(cpu_s=1e-3),
    "decoding that releases the lock": steady(cpu_s=5e-3, held_share=0.05),
    "reads that wait": steady(cpu_s=1e-4, wait_s=0.01),
    "reads that wait long": steady(cpu_s=1e-3, wait_s=0.3),
    "a first record that waits": changing(Cost(wait_s=0.05), COLUMNS, at=1),
    "cold then warm": changing(COLD, COLUMNS, at=2000),
    "cold then warm later": changing(COLD, COLUMNS, at=15_000),
    "warm then cold": changing(WARM, COLD, at=200_000),
    "a slow first epoch": changing(Cost(cpu_s=1e-4, wait_s=2e-3), Cost(cpu_s=1e-4), at=20_000),
    "a slow first epoch of a map that holds the lock": changing(
        Cost(cpu_s=1e-3, wait_s=1e-2), Cost(cpu_s=1e-3), at=2_000
    ),
    "a map that becomes slower half-way": changing(Cost(cpu_s=1e-4), Cost(cpu_s=2e-3), at=40_000),
    "bursts of waiting": bursts(Cost(cpu_s=1e-5), Cost(cpu_s=1e-5, wait_s=0.02), every=5_000),
    "bursts of computing": bursts(Cost(cpu_s=1e-6), Cost(cpu_s=0.03), every=10_000),
    "long bursts of waiting": long_bursts(FAST, WAITING, every=50_000, length=100),
    "long bursts of waiting, further apart": long_bursts(FAST, WAITING, every=100_000, length=100),
    "long bursts of computing": long_bursts(FAST, Cost(cpu_s=5e-3), every=50_000, length=60),
    "long bursts of decoding that releases the lock": long_bursts(
        FAST, Cost(cpu_s=5e-3, held_share=0.05), every=50_000, length=100
    ),
    "huge batches": steady(cpu_s=0.08, held_share=0.2),
    "a consumer slower than the data": steady(cpu_s=1e-4, consumer_s=1e-3),
    "a consumer slower than reads that wait": steady(cpu_s=1e-4, wait_s=0.01, consumer_s=2e-3),
}


@pytest.mark.parametrize("has_processes", [False, True])
@pytest.mark.parametrize("name", [*MATRIX])
def test_the_automatic_choice_is_nearly_as_good_as_the_best_fixed_one(
    name: str, has_processes: bool
):
    workload = MATRIX[name]
    strategies = [INLINE, *THREADS, *(PROCESSES if has_processes else [])]
    fixed = {strategy: run_fixed(workload, strategy, 10.0) for strategy in strategies}
    best = max(fixed.values(), key=lambda total: total.num_elements)

    simulator = Simulator(workload, strategies)
    tuned = simulator.run(10.0)

    assert tuned.num_elements >= 0.9 * best.num_elements, simulator.visited
    # Of strategies that are about as fast, it should use the one that needs least CPU time.
    cpu_s = min(
        total.cpu_s / total.num_elements
        for total in fixed.values()
        if total.num_elements >= 0.97 * best.num_elements
    )
    assert tuned.cpu_s / tuned.num_elements <= 1.1 * cpu_s, simulator.visited


@pytest.mark.parametrize("name", [*MATRIX])
def test_trials_cost_little(name: str):
    simulator = Simulator(MATRIX[name])
    simulator.run(60.0)

    assert simulator.lost_s <= 0.04 * 60.0, simulator.visited


def test_inline_stays_for_cheap_data_in_memory():
    simulator = Simulator(MATRIX["tiny records in memory"])
    simulator.run(30.0)

    assert set(simulator.visited) == {INLINE}


def test_all_threads_are_used_at_once_if_the_first_record_waits():
    simulator = Simulator(MATRIX["reads that wait"])

    assert simulator.current == THREADS[-1]
    simulator.run(60.0)
    assert simulator.choice.best == THREADS[-1]


def test_threads_are_found_for_code_that_releases_the_lock():
    simulator = Simulator(MATRIX["decoding that releases the lock"])
    simulator.run(5.0)

    assert simulator.choice.best.kind == "threads"


def test_processes_are_found_for_code_that_holds_the_lock():
    simulator = Simulator(steady(cpu_s=1e-3), [INLINE, *THREADS, *PROCESSES])
    simulator.run(10.0)

    assert simulator.choice.best == Strategy("processes", 2)


def test_a_first_record_that_waits_is_unlearned_within_a_second():
    simulator = Simulator(MATRIX["a first record that waits"])
    assert simulator.current.kind == "threads"

    simulator.run(1.0)

    assert simulator.choice.best == INLINE


@pytest.mark.parametrize("num_cold", [500, 2000, 15_000, 100_000])
def test_a_cold_start_of_any_length_is_unlearned_within_seconds(num_cold: int):
    simulator = Simulator(changing(COLD, COLUMNS, at=num_cold))
    while simulator.position < num_cold:
        simulator.run(0.1)

    simulator.run(3.0)

    assert simulator.choice.best == INLINE, simulator.visited


def test_data_that_become_slow_to_read_are_read_in_threads_within_seconds():
    simulator = Simulator(MATRIX["warm then cold"])
    while simulator.position < 200_000:
        simulator.run(0.1)
    assert simulator.choice.best == INLINE

    simulator.run(3.0)

    assert simulator.choice.best == THREADS[-1]


def test_a_change_is_noticed_after_minutes_without_one():
    simulator = Simulator(changing(COLD, COLUMNS, at=500_000))
    simulator.run(150.0)
    assert simulator.choice.best == THREADS[-1]
    assert simulator.choice.interval_s == POLICY.max_trial_interval_s
    while simulator.position < 500_000:
        simulator.run(0.1)

    simulator.run(3.0)

    assert simulator.choice.best == INLINE, simulator.visited[-10:]


def test_a_slow_consumer_gets_fewer_threads_as_long_as_they_keep_up():
    simulator = Simulator(MATRIX["a consumer slower than reads that wait"])
    simulator.run(30.0)

    assert simulator.choice.best == Strategy("threads", 8)


def test_a_busy_consumer_is_not_disturbed_by_trials_of_larger_strategies():
    workload = steady(cpu_s=1e-4, held_share=0.0, consumer_s=1e-3)
    simulator = Simulator(workload, [INLINE, *THREADS, *PROCESSES])
    simulator.run(30.0)

    assert set(simulator.visited) == {INLINE}


# The functions one by one


STRATEGIES = [INLINE, *THREADS[:2], Strategy("processes", 2)]


def measured(
    rate: float,
    *,
    seconds: float = 0.2,
    busy_share: float = 0.0,
    serial_s: float | None = None,
    waited_share: float = 0.0,
) -> MeasuringWindow:
    """Return a window with ten blocks at a rate; by default elements that are computed inline."""
    window = next_window(window_after_switch(0.0))
    serial_s = seconds if serial_s is None else serial_s
    for number in range(10):
        stats = BlockStats(
            round(rate * seconds / 10),
            seconds * (number + busy_share) / 10,
            seconds * (number + 1) / 10,
            cpu_s=(1 - waited_share) * serial_s / 10,
            waited_s=waited_share * serial_s / 10,
        )
        window = add_block(window, stats, POLICY)
    return window


def due(**changes: object) -> ExecutorChoice:
    """Return a choice on inline for which a trial is due."""
    choice = first_choice(STRATEGIES, POLICY, has_waited=False)
    return replace(choice, since_trial_s=10.0, starved_s=10.0, **changes)  # pyright: ignore


def test_a_trial_is_begun_when_it_is_due():
    _, decision = judge(due(), measured(1000), POLICY)
    assert decision == Try(strategy=STRATEGIES[1], needs_probe=True)

    choice = first_choice(STRATEGIES, POLICY, has_waited=False)
    assert judge(choice, measured(1000), POLICY)[1] is None


def test_a_larger_strategy_is_not_tried_while_the_consumer_is_busy():
    assert judge(due(), measured(1000, busy_share=0.6), POLICY)[1] is None


def test_reads_that_wait_get_all_threads_without_a_probe():
    _, decision = judge(due(), measured(1000, waited_share=0.9), POLICY)
    assert decision == Try(strategy=STRATEGIES[2], needs_probe=False)


def test_code_that_holds_the_lock_is_not_tried_in_threads_but_in_processes():
    choice, _ = judge(due(), measured(1000), POLICY)
    choice = after_probe(choice, POLICY, holds_lock=True)

    _, decision = judge(choice, measured(1000), POLICY)

    assert decision == Try(strategy=STRATEGIES[3], needs_probe=False)


def test_if_threads_cannot_help_and_nothing_else_can_the_probe_becomes_rare():
    choice = replace(due(), strategies=tuple(STRATEGIES[:2]))
    intervals = [choice.interval_s]
    for _ in range(4):
        choice = replace(choice, since_trial_s=100.0, starved_s=100.0)
        choice, decision = judge(choice, measured(1000), POLICY)
        assert isinstance(decision, Try)
        choice = after_probe(choice, POLICY, holds_lock=True)
        intervals.append(choice.interval_s)
    assert intervals == pytest.approx([0.3, 1.2, 4.8, 19.2, 60.0])


def trial(strategy: Strategy, **changes: object) -> ExecutorChoice:
    """Return a choice in the middle of a trial from a strategy with 1000 elements per second."""
    choice = due(**changes)
    choice = replace(
        choice,
        next=Try(strategy=strategy, needs_probe=False),
        best_rate=1000.0,
        block_elements=10.0,
    )
    return begin_trial(choice)


@pytest.mark.parametrize(("rate", "wins"), [(1050, False), (1150, True)])
def test_a_larger_strategy_must_be_faster(rate: float, wins: bool):
    choice, decision = judge(trial(STRATEGIES[1]), measured(rate), POLICY)

    assert isinstance(decision, EndTrial)
    assert choice.best == choice.current == decision.run == (STRATEGIES[1] if wins else INLINE)


@pytest.mark.parametrize(("rate", "wins"), [(950, False), (980, True)])
def test_a_smaller_strategy_must_keep_up(rate: float, wins: bool):
    choice = trial(INLINE, best=STRATEGIES[2], current=STRATEGIES[2])

    choice, _ = judge(choice, measured(rate), POLICY)

    assert choice.best == (INLINE if wins else STRATEGIES[2])


def test_failed_trials_back_off_and_a_success_starts_again():
    choice = trial(STRATEGIES[1])
    intervals: list[float] = []
    for _ in range(5):
        choice, _ = judge(choice, measured(500), POLICY)
        intervals.append(choice.interval_s)
        choice = replace(choice, next=Try(strategy=STRATEGIES[1], needs_probe=False))
        choice = begin_trial(choice)
    assert intervals == pytest.approx([1.2, 4.8, 19.2, 60.0, 60.0])

    choice, _ = judge(choice, measured(2000), POLICY)
    assert choice.interval_s == POLICY.quick_trial_s


def test_what_a_failed_trial_lost_is_taken_from_the_budget():
    choice, _ = judge(trial(STRATEGIES[1], budget_s=1.0), measured(500, seconds=0.4), POLICY)
    assert choice.budget_s == pytest.approx(1.0 - 0.2)


def test_nothing_is_tried_while_the_budget_is_overdrawn():
    overdrawn = due(budget_s=-0.1)
    choice, decision = judge(overdrawn, measured(1000), POLICY)
    assert decision is None
    assert choice.budget_s == pytest.approx(-0.1 + 0.2 * POLICY.max_trial_share)

    choice, decision = judge(choice, measured(1000, seconds=10.0), POLICY)
    assert decision is not None


def test_a_trial_that_would_probably_cost_too_much_waits_for_the_budget():
    """Inline, one block of ten elements would take 16 seconds instead of one."""
    threads = STRATEGIES[2]
    choice = due(best=threads, current=threads, strategies=(INLINE, threads))
    window = measured(10, seconds=10.0, serial_s=160.0)

    assert judge(choice, window, POLICY)[1] is None
    _, decision = judge(replace(choice, budget_s=16.0), window, POLICY)
    assert decision == Try(strategy=INLINE, needs_probe=False)


def test_a_change_of_the_data_makes_the_next_trial_come_soon():
    choice = due(best=STRATEGIES[2], current=STRATEGIES[2], budget_s=0.0, order=(INLINE,))
    choice = replace(choice, interval_s=60.0, since_trial_s=1.0, reference=(1000.0, 0.001))
    for _ in range(5):
        choice, decision = judge(choice, measured(1000), POLICY)
        assert decision is None
    for _ in range(POLICY.rate_change_windows - 1):
        choice, decision = judge(choice, measured(5000), POLICY)
        assert decision is None

    choice, decision = judge(choice, measured(5000), POLICY)

    assert decision == Try(strategy=INLINE, needs_probe=False)
    assert choice.interval_s == POLICY.retry_trial_s


def test_a_trial_ends_early_if_it_is_too_slow():
    choice = trial(STRATEGIES[1])
    assert not is_conclusive(choice, measured(500, seconds=0.02), POLICY)
    assert is_conclusive(choice, measured(500, seconds=0.05), POLICY)
    assert not is_conclusive(choice, measured(900, seconds=0.05), POLICY)
    assert is_conclusive(choice, measured(900, seconds=0.1), POLICY)


def test_a_trial_whose_first_block_takes_far_too_long_ends_after_it():
    choice = trial(STRATEGIES[1])  # 10 elements take 10 ms on the best strategy
    window = window_after_switch(0.0)
    slow = add_block(window, BlockStats(10, 0.0, 0.5), POLICY)
    fair = add_block(window, BlockStats(10, 0.0, 0.03), POLICY)

    assert is_conclusive(choice, slow, POLICY)
    assert not is_conclusive(choice, fair, POLICY)


def test_on_the_best_strategy_only_a_full_window_counts():
    choice = due(best_rate=1000.0)
    assert not is_conclusive(choice, measured(500, seconds=0.05), POLICY)
    assert is_conclusive(choice, measured(500, seconds=0.1), POLICY)


def bursts_known(*speeds: Speed, **changes: object) -> ExecutorChoice:
    """Return a choice after windows of data with bursts."""
    choice = due(history=speeds[:-1], best=speeds[0].strategy, current=speeds[0].strategy)
    window = measured(speeds[-1].rate, seconds=speeds[-1].seconds, serial_s=speeds[-1].serial_s)
    choice, _ = judge(replace(choice, **changes), window, POLICY)  # pyright: ignore
    assert choice.has_bursts
    return choice


def inline_speed(seconds: float, num_elements: int) -> Speed:
    return Speed(INLINE, seconds, num_elements, seconds, 0.0)


def test_with_bursts_the_speed_is_that_of_the_whole_history():
    choice = bursts_known(
        inline_speed(0.4, 4000), inline_speed(0.4, 80), inline_speed(0.4, 4000), budget_s=0.0
    )

    assert choice.best_rate == pytest.approx(8080 / 1.2)


def in_trial(choice: ExecutorChoice, strategy: Strategy) -> ExecutorChoice:
    return begin_trial(replace(choice, next=Try(strategy=strategy, needs_probe=False)))


def test_with_bursts_a_trial_ends_when_it_has_seen_as_many():
    processes = STRATEGIES[3]
    choice = bursts_known(inline_speed(0.4, 4000), inline_speed(0.4, 80), inline_speed(0.4, 4000))
    choice = in_trial(choice, processes)

    only_fast = measured(20_000, seconds=0.1, serial_s=0.2)
    only_slow = measured(400, seconds=0.1, serial_s=0.2)
    both = measured(13_000, seconds=0.1, serial_s=0.2)

    assert [is_conclusive(choice, one, POLICY) for one in (only_fast, only_slow, both)] == [
        False,
        False,
        True,
    ]


def test_with_bursts_a_trial_ends_early_if_they_do_not_explain_its_loss():
    choice = bursts_known(
        inline_speed(0.4, 4000), inline_speed(0.1, 20), inline_speed(0.4, 4000), budget_s=0.0
    )
    choice = in_trial(choice, STRATEGIES[3])

    slow_data = measured(200, seconds=0.4, serial_s=0.8)
    slow_workers = measured(200, seconds=0.4, serial_s=0.01)

    assert not is_conclusive(choice, slow_data, POLICY)
    assert is_conclusive(choice, slow_workers, POLICY)


def test_with_bursts_no_trial_begins_before_some_of_them_were_measured():
    speeds = inline_speed(0.2, 2000), inline_speed(0.2, 40), inline_speed(0.2, 2000)
    choice = bursts_known(*speeds)
    assert choice.next is None

    choice, decision = judge(choice, measured(10_000, seconds=0.6), POLICY)
    assert isinstance(decision, Try)


def test_a_strategy_that_cannot_be_used_is_never_tried_again():
    choice, _ = judge(due(), measured(1000), POLICY)
    choice = rule_out(choice, STRATEGIES[1:3])
    assert choice.next is None
    assert judge(choice, measured(1000), POLICY)[1] == Try(
        strategy=STRATEGIES[3], needs_probe=False
    )


def test_a_strategy_in_use_that_cannot_be_used_is_replaced_by_inline():
    processes = STRATEGIES[3]
    choice = rule_out(due(best=processes, current=processes), [processes])
    assert choice.best == choice.current == INLINE


def test_with_an_infinite_interval_nothing_is_ever_tried():
    choice = first_choice(STRATEGIES, replace(POLICY, first_trial_s=math.inf), has_waited=False)
    for _ in range(100):
        choice, decision = judge(choice, measured(1000, seconds=100.0), POLICY)
        assert decision is None
