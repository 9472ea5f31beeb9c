"""A simulator for the controllers: a fake clock and synthetic workloads, nothing that runs.

It computes how long blocks would take on a machine with few cores and one interpreter lock, and
drives the real controllers with the resulting `BlockStats`: block size, executor choice and
prefetch choice. A simulated minute takes a fraction of a second and is the same each time.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gristmill._engine.tuning.block_size import BlockSize, first_block_size, next_block_size
from gristmill._engine.tuning.executor_choice import (
    after_probe,
    begin_trial,
    first_choice,
    is_conclusive,
    judge,
)
from gristmill._engine.tuning.measure import BlockStats, has_mostly_waited, unexplained_wait_s
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.prefetch_choice import (
    ConsumerLoad,
    ThreadAction,
    after_block,
    after_request,
    choose_thread,
)
from gristmill._engine.tuning.strategy import EndTrial, ExecutorChoice, Strategy, Try
from gristmill._engine.tuning.window import (
    MeasuringWindow,
    add_block,
    next_window,
    window_after_switch,
)

TURNS_FACTOR = 1.25
"""Threads that take turns at the interpreter lock compute this much slower."""

INLINE = Strategy("inline", 1)
THREADS = [Strategy("threads", size) for size in (2, 4, 8, 16)]
PROCESSES = [Strategy("processes", size) for size in (2, 1)]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one element takes."""

    cpu_s: float = 0.0
    wait_s: float = 0.0
    """Seconds that it waits for a disk or a network."""
    held_share: float = 1.0
    """Share of `cpu_s` that holds the interpreter lock."""
    thread_factor: float = 1.0
    """Times that `cpu_s` is larger in threads, which read records one by one, not as columns."""
    send_s: float = 0.0
    """Seconds that receiving it from a worker process takes."""


def mean(one: Cost, other: Cost, share: float) -> Cost:
    """Return what elements take on average of which a share is like `other`."""

    def between(before: float, after: float) -> float:
        return (1 - share) * before + share * after

    cpu_s = between(one.cpu_s, other.cpu_s)
    per_cpu_s = 1 / cpu_s if cpu_s else 0.0
    return Cost(
        cpu_s=cpu_s,
        wait_s=between(one.wait_s, other.wait_s),
        held_share=between(one.cpu_s * one.held_share, other.cpu_s * other.held_share) * per_cpu_s,
        thread_factor=between(one.cpu_s * one.thread_factor, other.cpu_s * other.thread_factor)
        * per_cpu_s,
        send_s=between(one.send_s, other.send_s),
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Elements to compute, and a consumer that is busy with each of them."""

    cost: Callable[[range], Cost]
    """Returns what the elements at some positions take on average."""
    consumer_s: float = 0.0
    num_cores: int = 2
    noise: float = 0.1
    """Relative variation of the time of blocks."""

    def element_s(self, strategy: Strategy, cost: Cost) -> tuple[float, float]:
        """Return the seconds between elements, and the CPU seconds of each."""
        cpu_s, size = cost.cpu_s, strategy.size
        if strategy.kind == "inline":
            return cpu_s + cost.wait_s, cpu_s
        if strategy.kind == "processes":
            slowest_s = max(cpu_s / self.num_cores, cost.send_s)
            return max((cpu_s + cost.wait_s) / size, slowest_s), cpu_s + cost.send_s
        cpu_s *= cost.thread_factor * (TURNS_FACTOR if cost.held_share > 0.5 else 1.0)
        slowest_s = max(cpu_s * cost.held_share, cpu_s / self.num_cores)
        return max((cpu_s + cost.wait_s) / size, slowest_s), cpu_s


@dataclass(frozen=True)
class Total:
    """What a run has done."""

    num_elements: int
    cpu_s: float


class Simulator:
    """A stream over a workload, as the stages and the stream of the engine would run it."""

    def __init__(
        self,
        workload: Workload,
        strategies: Sequence[Strategy] = (INLINE, *THREADS),
        policy: TuningPolicy = TuningPolicy(),  # noqa: B008 - frozen
    ) -> None:
        self.workload = workload
        self.policy = policy
        self.now = 0.0
        self.position = 0
        self.cpu_s = 0.0
        self.visited: list[Strategy] = []
        self.lost_s = 0.0
        """Time that trials have lost which failed, relative to the strategy before them."""
        self._random = random.Random(0)
        self._sizes: dict[str, BlockSize] = {}
        self._window = window_after_switch(0.0)
        self._busy_until = 0.0
        """Until when threads of the strategy before compute what they had begun."""
        self._requested_at = 0.0
        self._load = ConsumerLoad()
        self.has_thread = False
        self._trial_began = (0.0, 0)
        self.choice = self._first_choice(strategies)
        self._run_on(self.choice.best)

    def _first_choice(self, strategies: Sequence[Strategy]) -> ExecutorChoice:
        """Read the first record, in the consumer's thread."""
        cost = self.workload.cost(range(1))
        wall_s = cost.cpu_s + cost.wait_s
        self.now += wall_s
        self.cpu_s += cost.cpu_s
        self.position = 1
        stats = BlockStats(1, num_positions=1, wall_s=wall_s, waited_s=cost.wait_s)
        return first_choice(
            strategies, self.policy, has_waited=has_mostly_waited(stats, self.policy)
        )

    @property
    def current(self) -> Strategy:
        """The strategy that the stream runs on."""
        return self.visited[-1]

    @property
    def total(self) -> Total:
        return Total(self.position, self.cpu_s)

    def run(self, seconds: float) -> Total:
        """Run for some time, and return what was done in it."""
        before, end = self.total, self.now + seconds
        while self.now < end:
            self._pull()
        return Total(self.position - before.num_elements, self.cpu_s - before.cpu_s)

    def _pull(self) -> None:
        """Compute a block, and let the consumer use it."""
        strategy, policy = self.current, self.policy
        state = self._block_size(strategy)
        size = state.size
        cost = self.workload.cost(range(self.position, self.position + size))
        element_s, element_cpu_s = self.workload.element_s(strategy, cost)
        noise = self._random.uniform(1 - self.workload.noise, 1 + self.workload.noise)
        is_settled = self.now >= self._busy_until
        pull_s = size * element_s * noise * (1.0 if is_settled else 2.0)
        is_background = strategy.kind != "inline" or self.has_thread
        self._load = after_request(self._load, self._requested_at, policy)
        self._choose_thread(strategy)
        self.cpu_s += size * element_cpu_s
        self.position += size
        stats = self._stats(strategy, size, element_s, element_cpu_s, cost, noise)
        self._sizes[strategy.kind] = next_block_size(state, stats, policy)
        busy_s = size * self.workload.consumer_s
        requested_at = self.now
        ready_at = requested_at + pull_s
        # In the background, blocks are computed while the consumer uses the one before.
        cycle_s = max(pull_s, busy_s) if is_background else pull_s + busy_s
        waited_s = cycle_s - busy_s
        self.now += cycle_s
        self._load = after_block(
            self._load, BlockStats(size, self.now - busy_s - waited_s, self.now - busy_s), policy
        )
        self._requested_at = self.now
        self._observe(
            replace_times(stats, requested_at=requested_at, ready_at=ready_at),
            is_settled=is_settled,
        )

    def _choose_thread(self, strategy: Strategy) -> None:
        action = choose_thread(
            self._load,
            self.policy,
            needs_thread=strategy.kind != "inline",
            has_thread=self.has_thread,
            is_requested=False,
        )
        if action is not ThreadAction.KEEP:
            self.has_thread = action is ThreadAction.START

    def _stats(
        self,
        strategy: Strategy,
        size: int,
        element_s: float,
        cpu_s: float,
        cost: Cost,
        noise: float,
    ) -> BlockStats:
        if strategy.kind == "threads":
            wall_s = strategy.size * size * element_s * noise
            waited_s = unexplained_wait_s(
                wall_s=wall_s, cpu_s=size * cpu_s, num_concurrent=strategy.size
            )
        else:
            wall_s = size * (cost.cpu_s + cost.wait_s) * noise
            waited_s = size * cost.wait_s * noise
        return BlockStats(
            size, num_positions=size, wall_s=wall_s, cpu_s=size * cpu_s, waited_s=waited_s
        )

    def _next_cost(self) -> Cost:
        return self.workload.cost(range(self.position, self.position + 1))

    def _block_size(self, strategy: Strategy) -> BlockSize:
        target_s = {
            "inline": self.policy.inline_block_s,
            "threads": self.policy.thread_block_s,
            "processes": self.policy.process_block_s,
        }[strategy.kind]
        return self._sizes.setdefault(strategy.kind, first_block_size(target_s, self.policy))

    # As the autotuned stage does

    def _observe(self, stats: BlockStats, *, is_settled: bool) -> None:
        policy = self.policy
        self._window: MeasuringWindow = add_block(
            self._window, stats, policy, is_settled=is_settled
        )
        if not is_conclusive(self.choice, self._window, policy):
            return
        self.choice, decision = judge(self.choice, self._window, policy)
        self._window = next_window(self._window)
        if isinstance(decision, EndTrial):
            if decision.run != self.current:
                began_at, position = self._trial_began
                gained_s = (self.position - position) / decision.previous_rate
                self.lost_s += max(0.0, self.now - began_at - gained_s)
                self._run_on(decision.run)
        elif isinstance(decision, Try):
            self._begin_trial(decision)

    def _begin_trial(self, trial: Try) -> None:
        if trial.needs_probe:
            cost = self._next_cost()
            held_s = cost.cpu_s * cost.held_share
            holds_lock = held_s > 0.5 * (cost.cpu_s + cost.wait_s)
            self.choice = after_probe(self.choice, self.policy, holds_lock=holds_lock)
            if holds_lock:
                return
        self.choice = begin_trial(self.choice)
        self._trial_began = (self.now, self.position)
        self._run_on(trial.strategy)

    def _run_on(self, strategy: Strategy) -> None:
        if self.visited and self.current.kind == "threads" and strategy.kind != "threads":
            # What the threads have begun is computed to its end, and lost.
            size = self._block_size(self.current).size
            cost = self._next_cost()
            _, cpu_s = self.workload.element_s(self.current, cost)
            self.cpu_s += self.current.size * size * cpu_s
            self._busy_until = self.now + self.current.size * size * cpu_s
            self._busy_until = min(self._busy_until, self.now + self.policy.max_settle_s)
        self.visited.append(strategy)
        self._window = window_after_switch(self.now)


def replace_times(stats: BlockStats, *, requested_at: float, ready_at: float) -> BlockStats:
    """Return statistics with the times at which the consumer requested and got the block."""
    return stats._replace(requested_at=requested_at, ready_at=ready_at)


def run_fixed(workload: Workload, strategy: Strategy, seconds: float) -> Total:
    """Run on one strategy all the time."""
    never = float("inf")
    policy = replace(TuningPolicy(), first_trial_s=never, quick_trial_s=never)
    if strategy.kind == "threads":  # as if the first record had waited
        policy = replace(policy, waiting_share=-never, min_waiting_s=-never)
    strategies = [INLINE] if strategy == INLINE else [INLINE, strategy]
    simulator = Simulator(workload, strategies, policy)
    if strategy.kind == "processes":
        simulator.choice = replace(simulator.choice, best=strategy, current=strategy)
        simulator._run_on(strategy)
    return simulator.run(seconds)
