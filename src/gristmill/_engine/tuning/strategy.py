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
    best_rate: float = 0.0
    """Elements per second on the best strategy, in its last window."""
    best_serial_s: float = 0.0
    """Seconds per element inline, in the same window."""
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
