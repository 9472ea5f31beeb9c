"""Executor choice: which execution strategy computes the most elements per second.

The objective is elements per second that the consumer can use, then memory and CPU time: a smaller
strategy wins if it is as fast. Strategies are compared by trials. For a moment the stream runs on
another strategy, its speed is measured, and the stream stays there or returns.

Nothing that was learned is final. Trials are repeated at growing intervals, and soon if the data
change: a first record that waited, a cold page cache or a slow first epoch are unlearned within
seconds. A budget limits what trials cost. The cost of a trial is predicted from the time that
elements would take inline.
"""

from collections.abc import Sequence
from dataclasses import replace

from gristmill._engine.tuning.history import (
    has_bursts,
    largest_loss_s,
    longer_history,
    relative_cost,
    speed_of,
    total_speed,
)
from gristmill._engine.tuning.measure import is_mostly_waiting
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import Decision, EndTrial, ExecutorChoice, Strategy, Try
from gristmill._engine.tuning.window import MeasuringWindow


def first_choice(
    strategies: Sequence[Strategy], policy: TuningPolicy, *, has_waited: bool
) -> ExecutorChoice:
    """Return the choice after the first record: all threads if it mostly waited, else inline.

    >>> some = [Strategy("inline", 1), Strategy("threads", 2), Strategy("threads", 4)]
    >>> print(first_choice(some, TuningPolicy(), has_waited=True).best)
    4 threads
    """
    threads = _of_kind(strategies, "threads") if has_waited else []
    best = threads[-1] if threads else strategies[0]
    return ExecutorChoice(
        strategies=tuple(strategies),
        best=best,
        current=best,
        interval_s=policy.quick_trial_s if threads else policy.first_trial_s,
        budget_s=policy.trial_allowance_s,
    )


def resumed_choice(choice: ExecutorChoice) -> ExecutorChoice:
    """Return the choice with which the next iterator of a loader begins.

    What was learned is a hint. Its speed is the reference: if the next iterator does not have it,
    the data are not the same, and trials come soon. A trial that had not ended is begun again.
    """
    reference = (choice.best_rate, choice.best_serial_s) if choice.best_rate else None
    retry = Try(strategy=choice.current, needs_probe=False) if choice.is_trial else None
    return replace(
        choice,
        current=choice.best,
        next=retry,
        budget_s=max(choice.budget_s, 0.0),
        reference=choice.reference or reference,
        num_changed=0,
    )


def postponed_choice(choice: ExecutorChoice) -> ExecutorChoice:
    """Return the choice that runs inline until the best strategy, which has to start, is ready."""
    inline = choice.strategies[0]
    return replace(
        choice, best=inline, current=inline, next=Try(strategy=choice.best, needs_probe=False)
    )


def is_conclusive(choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy) -> bool:
    """Return whether a window allows a decision: it is full, or shows that a trial fails."""
    if choice.is_trial and choice.has_bursts:
        return _has_seen_enough(choice, window, policy)
    if window.is_full(policy):
        return True
    if not choice.is_trial:
        return False
    min_s = policy.early_stop_window_share * policy.window_s
    if window.seconds >= min_s and window.num_blocks >= policy.window_blocks:
        return window.rate < policy.early_stop_ratio * choice.best_rate
    if window.seconds_since_settled < min_s:
        return False
    # Even with one more block it would be too slow. Short blocks may not have reached their size.
    has_long_blocks = window.seconds >= policy.warm_up_s * window.num_blocks > 0
    ratio = policy.early_stop_ratio if has_long_blocks else policy.abort_ratio
    num_possible = window.num_since_settled + choice.block_elements
    return num_possible < ratio * choice.best_rate * window.seconds_since_settled


def _has_seen_enough(choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy) -> bool:
    """Return whether a trial has seen its share of bursts, or loses more time than they explain."""
    if _unexplained_loss_s(choice, window) > _tolerated_loss_s(choice):
        return True
    if _lost_s(choice, window) > policy.max_trial_loss_s:
        return True
    if not window.is_full(policy):
        return False
    if window.num_elements >= total_speed(choice.history, choice.best).num_elements:
        return True
    expected_s = _expected_cost_s(choice) or choice.best_serial_s
    return not _differ(expected_s, window.serial_s_per_element, policy.same_data_factor)


def _expected_cost_s(choice: ExecutorChoice) -> float | None:
    """Return the seconds per element of a trial that has seen its share of bursts, if known."""
    relative = relative_cost(choice.history, choice.current, choice.best)
    return None if relative is None else relative * choice.best_serial_s


def _lost_s(choice: ExecutorChoice, window: MeasuringWindow) -> float:
    """Return the time that a trial has lost so far, relative to the best strategy."""
    return max(0.0, window.seconds_since_begin - window.num_all / choice.best_rate)


def _unexplained_loss_s(choice: ExecutorChoice, window: MeasuringWindow) -> float:
    """Return the time that a trial has lost, but for what more expensive elements explain."""
    lost_s, expected_s = _lost_s(choice, window), _expected_cost_s(choice)
    if not expected_s:
        return lost_s
    excess = max(0.0, window.serial_s_per_element / expected_s - 1)
    return lost_s - excess * window.num_elements / choice.best_rate


def _tolerated_loss_s(choice: ExecutorChoice) -> float:
    return max(0.0, choice.budget_s) + largest_loss_s(choice.history, choice.best)


def judge(
    choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy
) -> tuple[ExecutorChoice, Decision]:
    """Decide at the end of a window: end a trial, or begin one."""
    if choice.is_trial:
        return _end_trial(choice, window, policy)
    choice = _learn(choice, window, policy)
    if choice.next is not None:
        may_help = _may_help(choice, choice.next.strategy, window, policy)
        return choice, choice.next if may_help else None
    for strategy in _candidates(choice, window, policy):
        if _is_due(choice, strategy, window, policy):
            is_from_inline = strategy.kind == "threads" and choice.best.kind == "inline"
            needs_probe = is_from_inline and not _is_waiting(choice, window, policy)
            trial = Try(strategy=strategy, needs_probe=needs_probe)
            return replace(choice, next=trial), trial
    return choice, None


def begin_trial(choice: ExecutorChoice) -> ExecutorChoice:
    """Return the choice once the stream runs on the strategy that was to be tried next."""
    assert choice.next is not None
    tried = choice.next.strategy
    return replace(
        choice,
        current=tried,
        next=None,
        order=_moved_last(choice.order, tried),
        since_trial_s=0.0,
        starved_s=0.0,
    )


def after_probe(
    choice: ExecutorChoice, policy: TuningPolicy, *, holds_lock: bool
) -> ExecutorChoice:
    """Return the choice once it is known whether the code holds the interpreter lock."""
    assert choice.next is not None
    if holds_lock:
        return _skip_trial(choice, choice.next.strategy, policy)
    return replace(choice, next=replace(choice.next, needs_probe=False))


def rule_out(choice: ExecutorChoice, strategies: Sequence[Strategy]) -> ExecutorChoice:
    """Return the choice without strategies that cannot be used. If in use, inline replaces them."""
    inline = choice.strategies[0]
    kept = tuple(strategy for strategy in choice.strategies if strategy not in strategies)
    return replace(
        choice,
        strategies=kept,
        best=choice.best if choice.best in kept else inline,
        current=choice.current if choice.current in kept else inline,
        next=choice.next if choice.next and choice.next.strategy in kept else None,
    )


def _skip_trial(choice: ExecutorChoice, strategy: Strategy, policy: TuningPolicy) -> ExecutorChoice:
    """Try another strategy next; if there is none, the same one again after a longer time."""
    choice = replace(choice, next=None, order=_moved_last(choice.order, strategy))
    if _neighbors(choice) != [strategy]:
        return choice
    return replace(
        choice,
        interval_s=_longer(choice.interval_s, policy),
        since_trial_s=0.0,
        starved_s=0.0,
        reference=(choice.best_rate, choice.best_serial_s),
        num_changed=0,
    )


def _learn(choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy) -> ExecutorChoice:
    """Note a window on the best strategy."""
    speed = speed_of(window, choice.best)
    history = longer_history(choice.history, speed, policy)
    bursts = has_bursts(history, policy)
    if bursts:
        speed = total_speed(history, choice.best)
    measured = speed.rate, speed.serial_s_per_element
    is_changed = choice.reference is not None and any(
        _differ(before, now, policy.rate_change_factor)
        for before, now in zip(choice.reference, measured, strict=True)
    )
    num_changed = choice.num_changed + 1 if is_changed else 0
    if bursts and not choice.has_bursts:
        choice = replace(
            choice, interval_s=min(choice.interval_s, policy.retry_trial_s), reference=None
        )
        num_changed = 0
    starved_s = window.seconds if window.pulling_share >= policy.starved_share else 0.0
    choice = replace(
        choice,
        history=history,
        has_bursts=bursts,
        best_rate=speed.rate,
        best_serial_s=speed.serial_s_per_element,
        block_elements=window.num_elements / window.num_blocks,
        budget_s=choice.budget_s + policy.max_trial_share * window.seconds,
        since_trial_s=choice.since_trial_s + window.seconds,
        starved_s=choice.starved_s + starved_s,
        num_changed=num_changed,
    )
    if num_changed < policy.rate_change_windows:
        return choice
    return replace(
        choice,
        interval_s=min(choice.interval_s, policy.retry_trial_s),
        order=tuple(strategy for strategy in choice.order if strategy.kind != "inline"),
        reference=measured,
        num_changed=0,
    )


def _end_trial(
    choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy
) -> tuple[ExecutorChoice, EndTrial]:
    tried, best = choice.current, choice.best
    needed = policy.min_relative_speed if tried.is_smaller(best) else policy.min_speedup
    needed_rate = needed * choice.best_rate
    has_won = window.rate > needed_rate
    decision = EndTrial(
        run=tried if has_won else best,
        retire=best if has_won else tried,
        rate=window.rate,
        needed_rate=needed_rate,
        previous_rate=choice.best_rate,
    )
    if has_won:
        interval_s = policy.quick_trial_s
        lost_s = 0.0
    else:
        # With bursts it takes long until a trial can be judged: try all before waiting for longer.
        has_untried = any(one not in choice.order for one in _neighbors(choice))
        is_first_round = choice.has_bursts and has_untried
        interval_s = policy.retry_trial_s if is_first_round else _longer(choice.interval_s, policy)
        lost_s = _lost_s(choice, window)
    return (
        replace(
            choice,
            best=decision.run,
            current=decision.run,
            order=_moved_last(choice.order, decision.retire),  # it was measured just now, too
            history=longer_history(choice.history, speed_of(window, tried), policy),
            best_rate=window.rate if has_won else choice.best_rate,
            interval_s=interval_s,
            budget_s=choice.budget_s - lost_s,
            reference=None if has_won else (choice.best_rate, choice.best_serial_s),
            num_changed=0,
        ),
        decision,
    )


def _candidates(
    choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy
) -> list[Strategy]:
    """Return the strategies that may be tried, the one that was not tried for longest first.

    Of several that were never tried, inline is first, as the baseline for the others, then those
    that may be faster, then those that may be as fast with fewer threads or processes.
    """
    candidates = _neighbors(choice)
    if choice.best.kind == "inline" and _is_waiting(choice, window, policy):
        threads = _of_kind(choice.strategies, "threads")
        candidates = threads[-1:] + [other for other in candidates if other.kind != "threads"]
    rank = {strategy: number for number, strategy in enumerate(choice.order)}

    def key(strategy: Strategy) -> tuple[bool, int, bool]:
        only_saves = strategy.is_smaller(choice.best) and strategy.kind != "inline"
        # With bursts each trial takes long, so those that may be faster are first.
        return only_saves and choice.has_bursts, rank.get(strategy, -1), only_saves

    return sorted(candidates, key=key)


def _neighbors(choice: ExecutorChoice) -> list[Strategy]:
    """Return inline, the next smaller and larger strategies, and the first one of other kinds."""
    inline, best = choice.strategies[0], choice.best
    row = [inline, *(one for one in _of_kind(choice.strategies, best.kind) if one != inline)]
    number = row.index(best)
    near = [*row[:1], *row[max(0, number - 1) : number], *row[number + 1 : number + 2]]
    others = [
        _of_kind(choice.strategies, kind)[0]
        for kind in dict.fromkeys(strategy.kind for strategy in choice.strategies)
        if kind not in ("inline", best.kind)
    ]
    return [one for one in dict.fromkeys(near + others) if one != best]


def _is_due(
    choice: ExecutorChoice, strategy: Strategy, window: MeasuringWindow, policy: TuningPolicy
) -> bool:
    """Return whether it is time to try a strategy, and the budget covers the expected cost."""
    is_smaller = strategy.is_smaller(choice.best)
    if (choice.since_trial_s if is_smaller else choice.starved_s) < choice.interval_s:
        return False
    if not _may_help(choice, strategy, window, policy):
        return False
    if (
        choice.has_bursts
        and total_speed(choice.history, choice.best).seconds < policy.min_history_s
    ):
        return False
    return _expected_loss_s(choice, strategy, policy) <= choice.budget_s


def _may_help(
    choice: ExecutorChoice, strategy: Strategy, window: MeasuringWindow, policy: TuningPolicy
) -> bool:
    """Return whether a strategy is smaller, or the consumer waits enough to gain from another."""
    return strategy.is_smaller(choice.best) or window.pulling_share >= policy.starved_share


def _expected_loss_s(choice: ExecutorChoice, strategy: Strategy, policy: TuningPolicy) -> float:
    """Return the time that a failed trial would probably lose.

    Each thread or process of the strategy is assumed to be as fast as inline.
    """
    serial_s = choice.best_serial_s
    if not serial_s or strategy.size / serial_s >= choice.best_rate:
        return 0.0
    rate = strategy.size / serial_s
    is_aborted = rate < policy.abort_ratio * choice.best_rate
    num_blocks = 1 if is_aborted else 3  # while threads settle, the first, and one to confirm
    shortest_s = policy.early_stop_window_share * policy.window_s
    trial_s = max(shortest_s, num_blocks * choice.block_elements / rate)
    return trial_s * (1 - rate / choice.best_rate)


def _is_waiting(choice: ExecutorChoice, window: MeasuringWindow, policy: TuningPolicy) -> bool:
    """Return whether elements mostly wait, or those of some bursts do."""
    bursts = choice.history if choice.has_bursts else ()
    return is_mostly_waiting(window.serial_s, window.waited_s, policy) or any(
        is_mostly_waiting(speed.serial_s, speed.waited_s, policy)
        for speed in bursts
        if speed.strategy == choice.best
    )


def _of_kind(strategies: Sequence[Strategy], kind: str) -> list[Strategy]:
    return [strategy for strategy in strategies if strategy.kind == kind]


def _moved_last(order: tuple[Strategy, ...], last: Strategy) -> tuple[Strategy, ...]:
    return (*(strategy for strategy in order if strategy != last), last)


def _longer(interval_s: float, policy: TuningPolicy) -> float:
    longer = min(policy.backoff_factor * interval_s, policy.max_trial_interval_s)
    return max(longer, policy.retry_trial_s)


def _differ(before: float, now: float, factor: float) -> bool:
    return max(before, now) > factor * min(before, now)
