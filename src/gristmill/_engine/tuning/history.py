"""Speed history: the last windows of a stream, and whether the data come in bursts.

Where some elements take much longer than others, and those come together, the speed of a short
window depends on what happened to be in it. Then a trial is compared with the whole history, and
lasts until its elements were, on average, as expensive as those of the history. If the present
strategy has lost some time in a burst, a trial may lose as much before it ends early.
"""

from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import Speed, SpeedHistory, Strategy
from gristmill._engine.tuning.window import MeasuringWindow


def speed_of(window: MeasuringWindow, strategy: Strategy) -> Speed:
    """Return what was measured in a window."""
    return Speed(strategy, window.seconds, window.num_elements, window.serial_s, window.waited_s)


def longer_history(history: SpeedHistory, speed: Speed, policy: TuningPolicy) -> SpeedHistory:
    """Return the history with another window, and without the oldest ones."""
    return (*history, speed)[-policy.history_windows :] if speed.num_elements else history


def total_speed(history: SpeedHistory, strategy: Strategy) -> Speed:
    """Return what was measured in all windows on a strategy together.

    >>> inline = Strategy("inline", 1)
    >>> total_speed((Speed(inline, 0.1, 100, 0.1, 0.0), Speed(inline, 0.3, 100, 0.3, 0.2)), inline)
    ... # doctest: +ELLIPSIS
    Speed(strategy=Strategy(kind='inline', size=1), seconds=0.4, num_elements=200, ...)
    """
    speeds = [speed for speed in history if speed.strategy == strategy]
    return Speed(
        strategy,
        sum([speed.seconds for speed in speeds]),
        sum([speed.num_elements for speed in speeds]),
        sum([speed.serial_s for speed in speeds]),
        sum([speed.waited_s for speed in speeds]),
    )


def has_bursts(history: SpeedHistory, policy: TuningPolicy) -> bool:
    """Return whether elements became more expensive and cheaper again, or the reverse.

    A single change is none: from a cold cache to a warm one, or from one kind of data to another.
    Windows on threads are compared only with each other, as threads may read records in another
    way, and take turns at the interpreter lock.

    >>> inline = Strategy("inline", 1)
    >>> slow, fast = Speed(inline, 0.1, 100, 0.1, 0.0), Speed(inline, 0.1, 1000, 0.1, 0.0)
    >>> policy = TuningPolicy()
    >>> has_bursts((slow, fast, fast), policy), has_bursts((fast, slow, fast), policy)
    (False, True)
    """
    factor = policy.rate_change_factor
    in_threads, elsewhere = _costs(history, in_threads=True), _costs(history, in_threads=False)
    return len({*_directions(in_threads, factor), *_directions(elsewhere, factor)}) == 2


def relative_cost(history: SpeedHistory, strategy: Strategy, other: Strategy) -> float | None:
    """Return how much more an element takes on a strategy than on another, apart from bursts.

    Only threads differ from the others. `None`: that was not measured.

    >>> inline, threads = Strategy("inline", 1), Strategy("threads", 4)
    >>> history = (Speed(inline, 0.1, 1000, 0.1, 0.0), Speed(threads, 0.1, 500, 0.1, 0.0))
    >>> relative_cost(history, threads, inline)
    2.0
    """
    if (strategy.kind == "threads") == (other.kind == "threads"):
        return 1.0
    costs = _costs(history, in_threads=strategy.kind == "threads")
    other_costs = _costs(history, in_threads=other.kind == "threads")
    return min(costs) / min(other_costs) if costs and other_costs else None


def _costs(history: SpeedHistory, *, in_threads: bool) -> list[float]:
    """Return the seconds per element of the windows on threads, or of the others."""
    return [
        speed.serial_s_per_element
        for speed in history
        if (speed.strategy.kind == "threads") == in_threads and speed.serial_s
    ]


def largest_loss_s(history: SpeedHistory, strategy: Strategy) -> float:
    """Return the most time that a strategy lost in a row, relative to its mean speed.

    >>> inline = Strategy("inline", 1)
    >>> fast, slow = Speed(inline, 0.1, 100, 0.1, 0.0), Speed(inline, 0.5, 1, 0.5, 0.0)
    >>> round(largest_loss_s((fast, fast, slow, fast, fast), inline), 1)
    0.5
    """
    rate = max(total_speed(history, strategy).rate, 1e-9)
    largest = current = 0.0
    for speed in history:
        if speed.strategy == strategy:
            current = max(0.0, current + speed.seconds - speed.num_elements / rate)
            largest = max(largest, current)
    return largest


def _directions(costs: list[float], factor: float) -> set[int]:
    """Return 1 if the costs rise by a factor, and -1 if they fall by it, before or after that."""
    directions: set[int] = set()
    low = high = costs[0] if costs else 0.0
    for cost in costs:
        low, high = min(low, cost), max(high, cost)
        direction = (cost > factor * low) - (factor * cost < high)
        if direction:
            directions.add(direction)
            low = high = cost
    return directions
