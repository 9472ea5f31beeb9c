"""The next iterator of a loader begins with what the last one learned, and measures it again."""

import math
import os
import pickle
from dataclasses import replace
from itertools import islice
from typing import Any

import gristmill as gm
from gristmill._engine.tuning.executor_choice import (
    begin_trial,
    first_choice,
    judge,
    postponed_choice,
    resumed_choice,
)
from gristmill._engine.tuning.learned import LearnedChoices
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import ExecutorChoice, Strategy, Try
from tests.engine.tuning.simulator import INLINE, PROCESSES, THREADS
from tests.engine.tuning.test_executor_choice import measured
from tests.faults.processes import workers_of
from tests.policies import TRIES_AT_ONCE, recorded_strategies, with_policy

POLICY = TuningPolicy()
STRATEGIES = (INLINE, *THREADS, *PROCESSES)


def choice_on(best: Strategy, **changes: Any) -> ExecutorChoice:
    """Return a choice that has settled on a strategy with 1000 elements per second."""
    choice = first_choice(STRATEGIES, POLICY, has_waited=False)
    settled = replace(choice, best=best, current=best, best_rate=1000.0, best_serial_s=0.001)
    return replace(settled, **changes)


def test_the_best_strategy_and_the_intervals_are_kept():
    learned = LearnedChoices()
    learned.remember(0, choice_on(PROCESSES[0], interval_s=12.0, budget_s=-1.0))

    choice = learned.recall(0, STRATEGIES)

    assert choice is not None
    assert choice.best == choice.current == PROCESSES[0]
    assert choice.interval_s == 12.0
    assert choice.budget_s == 0.0


def test_nothing_is_recalled_for_other_strategies_or_steps_or_before_a_measurement():
    learned = LearnedChoices()
    learned.remember(0, choice_on(INLINE))
    learned.remember(1, first_choice(STRATEGIES, POLICY, has_waited=True))

    assert learned.recall(0, STRATEGIES[:-1]) is None
    assert learned.recall(1, STRATEGIES) is None
    assert learned.recall(2, STRATEGIES) is None
    assert pickle.loads(pickle.dumps(learned)).recall(0, STRATEGIES) is None


def test_a_trial_that_had_not_ended_is_begun_again():
    trial = begin_trial(choice_on(INLINE, next=Try(strategy=PROCESSES[0], needs_probe=False)))

    choice = resumed_choice(trial)

    assert choice.current == INLINE
    assert choice.next == Try(strategy=PROCESSES[0], needs_probe=False)


def test_another_speed_than_the_one_that_was_learned_makes_the_next_trial_come_soon():
    choice = resumed_choice(choice_on(THREADS[-1], interval_s=60.0, since_trial_s=1.0))
    decision = None
    for _ in range(POLICY.rate_change_windows):
        choice, decision = judge(choice, measured(5000), POLICY)

    assert decision == Try(strategy=INLINE, needs_probe=False)


def test_workers_that_have_to_start_are_waited_for_inline():
    choice = postponed_choice(choice_on(PROCESSES[0]))

    assert choice.best == choice.current == INLINE
    _, decision = judge(choice, measured(1000), POLICY)
    assert decision == Try(strategy=PROCESSES[0], needs_probe=False)


def compute(number: int) -> int:
    return sum(range(number))


def tuned_loader(policy: TuningPolicy, **arguments: Any) -> gm.DataLoader:
    loader = gm.DataLoader(
        data_source=range(300),
        sampler=gm.IndexSampler(300, num_epochs=1),
        operations=[compute],
        worker_count=None,
        **arguments,
    )
    changed: Any = with_policy(loader, policy)
    changed._original = loader  # the workers end with it
    return changed


EXPECTED = [compute(number) for number in range(300)]


def test_the_second_epoch_begins_with_the_workers_that_won_in_the_first():
    policy = replace(
        TRIES_AT_ONCE,
        max_block_positions=2,
        max_tried_workers=2,
        min_speedup=-math.inf,
        min_relative_speed=math.inf,
    )
    loader = tuned_loader(policy, read_options=gm.ReadOptions(num_threads=1))
    before = set(workers_of(os.getpid()))
    assert list(loader) == EXPECTED
    workers = set(workers_of(os.getpid())) - before

    with recorded_strategies() as strategies:
        iterator = iter(loader)
        head = list(islice(iterator, 2))
        first = strategies[0]
        assert head + list(iterator) == EXPECTED

    assert first == "2 processes"
    assert workers
    assert set(workers_of(os.getpid())) - before == workers
    loader.close()


def test_if_the_workers_have_ended_the_next_epoch_begins_inline():
    policy = replace(
        TRIES_AT_ONCE,
        max_block_positions=2,
        max_tried_workers=1,
        min_speedup=-math.inf,
        min_relative_speed=math.inf,
    )
    loader = tuned_loader(policy, read_options=gm.ReadOptions(num_threads=1))
    assert list(loader) == EXPECTED
    loader.close()
    patient = with_policy(loader, replace(policy, ready_timeout_s=0.0))

    iterator = iter(patient)
    assert next(iterator) == EXPECTED[0]
    assert iterator.stats().executor == "inline"
    assert list(iterator) == EXPECTED[1:]
    loader.close()


def test_without_an_interpreter_lock_threads_replace_processes():
    loader: Any = tuned_loader(POLICY)
    settings = replace(loader._pipeline.settings, has_interpreter_lock=False)
    loader._pipeline = replace(loader._pipeline, settings=settings)

    iterator: Any = iter(loader)

    kinds = {one.kind for one in iterator._run.stream._stage._choice.strategies}
    assert kinds == {"inline", "threads"}
    assert list(iterator) == EXPECTED
