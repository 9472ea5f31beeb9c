"""Simulate what 1,000 hosts and 10,000 actors would do, from costs measured on one machine.

A discrete-event simulation of the parts that can limit a training: the process of one consumer with
its actors, its link and its object store; the head, which all consumers ping and which starts all
actors; and the broker of a shared pool. Parts that hosts do not share are simulated once, as all
hosts are alike.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

SIMULATED_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Measured with `python -m benchmarks.ray_costs` on a machine with 2 cores, Ray 2.60."""

    message_s: float = 0.0017
    """CPU time of the consumer for one block: sending the task, two callbacks, decoding."""
    copy_bytes_per_s: float = 8.9e9
    """Copying a block from the object store to the memory of the user."""
    pull_bytes_per_s: float = 0.51e9
    """Fetching an object from another node, per consumer."""
    actor_start_head_s: float = 0.012
    """CPU time of the head for the start of one actor."""
    ping_head_s: float = 0.0002
    """CPU time of the head for one request of a consumer that checks whether it is there."""
    room_ping_head_s: float = 0.00016
    """The same if the consumer follows the room of the cluster, apart from its nodes."""
    room_ping_node_s: float = 0.0000067
    """What each node adds to that."""
    broker_call_s: float = 0.0022
    """CPU time of the broker of a shared pool for one request."""
    block_s: float = 0.05
    """Time that an actor computes a block, 20% more or less."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A training on many hosts."""

    num_hosts: int
    actors_per_host: int
    block_bytes: float = 2e6
    store_bytes: float = 2e9
    """The object store of a host."""
    is_elastic: bool = False
    """Whether the consumers follow the room of the cluster."""


START_STEPS = 6
"""The head starts an actor in about this many steps, between which it waits for the node."""

STEP_WAIT_S = 0.05
"""For how long it waits: an assumption, which matters little while the head is busy."""

ACTOR_START_S = 3.0
"""Time for which an actor imports modules."""

LATE_S = 1.0
"""After this time a block that the consumer waits for is given to a second actor."""


LOST_AFTER_S = 5.0
"""A consumer that waits longer for the head ends with an error."""


class Simulation:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.random = random.Random(0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._events, (moment, self._count, action))

    def run(self, until: float = SIMULATED_S) -> None:
        """Do what happens up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until


class Server:
    """A core or a link: it does one thing after the other."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._free_at = 0.0
        self.busy_s = 0.0

    def do(self, seconds: float, then: Callable[[], None]) -> None:
        """Queue some work, and do something once it is done."""
        begin = max(self._simulation.now, self._free_at)
        self.busy_s += max(0.0, min(seconds, SIMULATED_S - begin))
        self._free_at = begin + seconds
        self._simulation.at(self._free_at, then)


class Consumer:
    """One host: the program, which takes blocks in order, and its actors on other hosts."""

    def __init__(self, cluster: Cluster, costs: Costs, *, dies_at: float | None = None) -> None:
        self._cluster, self._costs = cluster, costs
        self._simulation = simulation = Simulation()
        self.core, self.link = Server(simulation), Server(simulation)
        self._max_ahead = 2 * cluster.actors_per_host
        self._next, self._expected = 0, 0
        self._arrived: set[int] = set()
        self._waiting_for_store: deque[tuple[int, int]] = deque()
        self._tasks = {actor: deque[int]() for actor in range(cluster.actors_per_host)}
        self._dead: set[int] = set()
        self._stored_bytes = self.peak_bytes = 0.0
        self.times: list[float] = []
        """When blocks were delivered."""
        for actor in self._tasks:
            for _ in range(2):
                self._send(actor)
        if dies_at is not None:
            simulation.at(dies_at, lambda: self._die(0))
        simulation.run()

    def _send(self, actor: int) -> None:
        if self._next - self._expected < self._max_ahead and actor not in self._dead:
            self._add(actor, self._next)
            self._next += 1

    def _add(self, actor: int, block: int) -> None:
        self._tasks[actor].append(block)
        if len(self._tasks[actor]) == 1:
            self._compute(actor)

    def _compute(self, actor: int) -> None:
        block = self._tasks[actor][0]
        seconds = self._costs.block_s * self._simulation.random.uniform(0.8, 1.2)
        self._simulation.at(self._simulation.now + seconds, lambda: self._computed(actor, block))

    def _computed(self, actor: int, block: int) -> None:
        if actor in self._dead:
            return
        self._tasks[actor].popleft()
        if self._tasks[actor]:
            self._compute(actor)
        self._waiting_for_store.append((actor, block))
        self._pull()

    def _pull(self) -> None:
        """Transfer the blocks for which the object store of this host has room."""
        size = self._cluster.block_bytes
        while self._waiting_for_store and self._stored_bytes + size <= self._cluster.store_bytes:
            actor, block = self._waiting_for_store.popleft()
            self._stored_bytes += size
            self.peak_bytes = max(self.peak_bytes, self._stored_bytes)
            seconds = size / self._costs.pull_bytes_per_s
            self.link.do(seconds, lambda a=actor, b=block: self._pulled(a, b))

    def _pulled(self, actor: int, block: int) -> None:
        self.core.do(self._costs.message_s, lambda: self._handled(actor, block))

    def _handled(self, actor: int, block: int) -> None:
        self._arrived.add(block)
        while self._expected in self._arrived:
            self._arrived.remove(self._expected)
            self._expected += 1
            seconds = self._cluster.block_bytes / self._costs.copy_bytes_per_s
            self.core.do(seconds, self._delivered)
        for idle in sorted(self._tasks, key=lambda one: len(self._tasks[one])):
            while len(self._tasks[idle]) < 2 and self._next - self._expected < self._max_ahead:
                if idle in self._dead:
                    break
                self._send(idle)

    def _delivered(self) -> None:
        self._stored_bytes -= self._cluster.block_bytes
        self.times.append(self._simulation.now)
        self._pull()

    def _die(self, actor: int) -> None:
        """Lose an actor with its node: what it had to compute goes to others once it is late."""
        lost, self._tasks[actor] = self._tasks[actor], deque()
        self._dead.add(actor)
        others = [other for other in self._tasks if other not in self._dead]
        for block in lost:
            other = self._simulation.random.choice(others)
            self._simulation.at(
                self._simulation.now + LATE_S, lambda o=other, b=block: self._add(o, b)
            )

    @property
    def blocks_per_s(self) -> float:
        """Blocks that the program got, after the first seconds."""
        late = [moment for moment in self.times if moment > SIMULATED_S / 3]
        return len(late) / (SIMULATED_S * 2 / 3)

    @property
    def longest_stop_s(self) -> float:
        """The longest time between two blocks."""
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))


class Head:
    """The head, which all consumers ping once a second, while it starts all actors."""

    def __init__(self, cluster: Cluster, costs: Costs, *, is_starting: bool) -> None:
        self._simulation = simulation = Simulation()
        self.core = Server(simulation)
        self.slowest_ping_s = self.started_s = 0.0
        self._step_s = costs.actor_start_head_s / START_STEPS
        self._ping_s = costs.ping_head_s
        if cluster.is_elastic:
            self._ping_s = costs.room_ping_head_s + cluster.num_hosts * costs.room_ping_node_s
        for _ in range(cluster.num_hosts):
            simulation.at(simulation.random.random(), self._ping)
        if is_starting:
            for _ in range(cluster.num_hosts * cluster.actors_per_host):
                simulation.at(simulation.random.random(), lambda: self._start(START_STEPS))
        simulation.run(10 * SIMULATED_S if is_starting else SIMULATED_S)

    def _ping(self) -> None:
        asked_at = self._simulation.now

        def answered() -> None:
            now = self._simulation.now
            self.slowest_ping_s = max(self.slowest_ping_s, now - asked_at)
            self._simulation.at(now + 1.0, self._ping)

        self.core.do(self._ping_s, answered)

    def _start(self, steps: int) -> None:
        now = self._simulation.now
        if not steps:
            self.started_s = now
            return
        self.core.do(
            self._step_s,
            lambda: self._simulation.at(
                self._simulation.now + STEP_WAIT_S, lambda: self._start(steps - 1)
            ),
        )


def shared_blocks_per_s(cluster: Cluster, costs: Costs) -> float:
    """Return how many blocks each reader gets from one pool with the actors of one host.

    Each reader has as many requests open as the pool has actors; all go through the broker.
    """
    simulation = Simulation()
    broker, num_done = Server(simulation), 0
    period_s = costs.block_s / cluster.actors_per_host  # in which the actors compute a block
    positions = [0] * cluster.num_hosts

    def request(reader: int) -> None:
        block = positions[reader]
        positions[reader] += 1
        computed_at = block * period_s

        def serve() -> None:
            broker.do(costs.broker_call_s, lambda: done(reader))

        simulation.at(max(simulation.now, computed_at), serve)

    def done(reader: int) -> None:
        nonlocal num_done
        num_done += 1
        request(reader)

    for reader in range(cluster.num_hosts):
        for _ in range(cluster.actors_per_host):
            request(reader)
    simulation.run()
    return num_done / cluster.num_hosts / SIMULATED_S


def simulate(cluster: Cluster, costs: Costs) -> dict[str, str]:
    """Return what happens to each part, by name, and which part is the limit."""
    consumer = Consumer(cluster, costs)
    stopped = Consumer(cluster, costs, dies_at=SIMULATED_S / 2)
    head, starting = (Head(cluster, costs, is_starting=starts) for starts in (False, True))
    elastic = Head(replace(cluster, is_elastic=True), costs, is_starting=False)
    possible = cluster.actors_per_host / costs.block_s
    shared = shared_blocks_per_s(cluster, costs)
    loads = {
        "the core of the consumer": consumer.core.busy_s / SIMULATED_S,
        "the link of the consumer": consumer.link.busy_s / SIMULATED_S,
        "the head": head.core.busy_s / SIMULATED_S,
    }
    limit = max(loads, key=lambda name: loads[name])
    return {
        "hosts": f"{cluster.num_hosts:,}",
        "actors": f"{cluster.num_hosts * cluster.actors_per_host:,}",
        "blocks/s per consumer": f"{consumer.blocks_per_s:,.0f} of {possible:,.0f}",
        "limit": limit if loads[limit] > 0.95 else "the actors",
        **{f"{name} is busy": f"{load:.0%}" for name, load in loads.items()},
        "object store, at most": f"{consumer.peak_bytes / 1e6:,.0f} MB",
        "stop when a node dies": f"{stopped.longest_stop_s:.1f} s",
        "slowest ping": show_ping(head),
        "the same, elastic": show_ping(elastic),
        "the same, while all actors start": show_ping(starting),
        "all actors are started after": show_s(starting.started_s + ACTOR_START_S),
        "shared pool: blocks/s per reader": f"{shared:,.1f} of {possible:,.0f}",
    }


def show_s(seconds: float) -> str:
    """Return a time for readers."""
    return f"{1000 * seconds:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def show_ping(head: Head) -> str:
    """Return the slowest answer of the head, and whether a consumer takes it for lost."""
    shown = show_s(head.slowest_ping_s)
    return f"{shown}: too late" if head.slowest_ping_s > LOST_AFTER_S else shown


def main() -> None:
    """Print what happens in growing clusters."""
    sizes = ((1, 10), (10, 10), (100, 10), (1000, 10), (1000, 20), (1, 60))
    results = [
        simulate(Cluster(num_hosts=hosts, actors_per_host=actors), Costs())
        for hosts, actors in sizes
    ]
    for number, name in enumerate(results[0]):
        print(f"| {name} | " + " | ".join(result[name] for result in results) + " |")
        if number == 0:
            print("|---" * (1 + len(results)) + "|")


if __name__ == "__main__":
    main()
