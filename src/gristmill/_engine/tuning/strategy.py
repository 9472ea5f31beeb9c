"""Execution strategies, the decisions about them, and what a stream has learned about them."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final


class Strategy(NamedTuple):
    """An execution strategy: a kind of executor and its size.

    >>> print(Strategy("inline", 1), Strategy("threads", 4))
    inline 4 threads
    """

    kind: str
    """`"inline"`, `"threads"` or `"processes"`."""
    size: int
    """Number of threads or processes."""

    def __str__(self) -> str:
        return self.kind if self.kind == "inline" else f"{self.size} {self.kind}"

    def is_smaller(self, other: "Strategy") -> bool:
        """Return whether this one needs less memory and fewer cores than `other`."""
        return self.kind in ("inline", other.kind) and self.size < other.size


class Speed(NamedTuple):
    """What was measured on a strategy in some time."""

    strategy: Strategy
    seconds: float
    num_elements: int
    serial_s: float
    """Seconds that the elements would have taken inline."""
    waited_s: float
    """Seconds of these in which they waited for a disk or a network."""

    @property
    def rate(self) -> float:
        """Elements per second."""
        return self.num_elements / max(self.seconds, 1e-9)

    @property
    def serial_s_per_element(self) -> float:
        """Seconds that an element would have taken inline."""
        return self.serial_s / max(self.num_elements, 1)


SpeedHistory: TypeAlias = tuple[Speed, ...]
"""The last windows of a stream on any strategy, the latest one last."""


@final
@dataclass(frozen=True, kw_only=True)
class Try:
    """Start a trial as soon as the strategy is ready."""

    strategy: Strategy
    needs_probe: bool
    """Whether to probe first if the code releases the interpreter lock, and not to try if not."""


@final
@dataclass(frozen=True, kw_only=True)
class EndTrial:
    """A trial has ended."""

    run: Strategy
    """The strategy that was better. The stream runs on it from now on."""
    retire: Strategy
    """The other one."""
    rate: float
    """Elements per second during the trial."""
    needed_rate: float
    """How many must be exceeded for the strategy that was tried to be kept."""
    previous_rate: float
    """Elements per second before it."""


Decision: TypeAlias = Try | EndTrial | None
"""What to do now. `None`: continue."""


@final
@dataclass(frozen=True, kw_only=True)
class ExecutorChoice:
    """The strategy of a stream, and what was learned about the others."""

    strategies: tuple[Strategy, ...]
    """The strategies that can be used, inline first, those of one kind together."""
    best: Strategy
    """The strategy to use, as far as is known."""
    current: Strategy
    """The strategy that the stream runs on: during a trial, not the best."""
    interval_s: float
    """Time until the next trial."""
    budget_s: float
    """Time that trials may still cost."""
    next: Try | None = None
    """The next trial, while its strategy gets ready."""
    order: tuple[Strategy, ...] = ()
    """Strategies that were tried, the last one last."""
    history: SpeedHistory = ()
    """The last windows, also those of trials."""
    has_bursts: bool = False
    """Whether the elements of some windows took much longer than those before and after."""
    best_rate: float = 0.0
    """Elements per second on the best strategy: in its last window, or in all of `history` if there
    are bursts."""
    best_serial_s: float = 0.0
    """Seconds per element inline, in the same time."""
    block_elements: float = 0.0
    """Elements of a block on the best strategy."""
    since_trial_s: float = 0.0
    """Time on the best strategy since the last trial."""
    starved_s: float = 0.0
    """Part of that time in windows in which the consumer mostly waited."""
    reference: tuple[float, float] | None = None
    """Elements per second, and seconds per element inline, when the last trial failed or was found
    to be useless."""
    num_changed: int = 0
    """Windows in a row that differ from the reference."""

    @property
    def is_trial(self) -> bool:
        """Whether the stream runs on a strategy that is being tried."""
        return self.current != self.best
