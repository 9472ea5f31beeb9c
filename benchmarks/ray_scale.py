"""What 1,000 hosts and 10,000 actors would do, computed from costs measured on one machine.

Each host is a consumer with its own pool of actors, whose blocks all arrive in its process. A pool
that all hosts share has a broker instead, through which each request of each host goes.
"""

from dataclasses import dataclass


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
    broker_call_s: float = 0.0022
    """CPU time of the broker of a shared pool for one request."""
    block_s: float = 0.05
    """Time that an actor computes a block."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A training on many hosts."""

    num_hosts: int
    actors_per_host: int
    block_bytes: float
    plan_bytes: float


def simulate(cluster: Cluster, costs: Costs) -> dict[str, float]:
    """Return the load of each part, as a share of one core or link; above 1 it is the limit."""
    blocks_per_s = cluster.actors_per_host / costs.block_s
    bytes_per_s = blocks_per_s * cluster.block_bytes
    num_actors = cluster.num_hosts * cluster.actors_per_host
    num_rounds = cluster.num_hosts.bit_length()  # nodes that have the plan send it on
    return {
        "actors": num_actors,
        "blocks/s per consumer": blocks_per_s,
        "consumer: messages": blocks_per_s * costs.message_s,
        "consumer: copies": bytes_per_s / costs.copy_bytes_per_s,
        "consumer: network": bytes_per_s / costs.pull_bytes_per_s,
        "head: pings": cluster.num_hosts * costs.ping_head_s,
        "head: start of all actors, s": num_actors * costs.actor_start_head_s,
        "look-ahead per consumer, MB": 2 * cluster.actors_per_host * cluster.block_bytes / 1e6,
        "plan on all nodes, s": num_rounds * cluster.plan_bytes / costs.pull_bytes_per_s,
        "shared pool: broker": cluster.num_hosts * blocks_per_s * costs.broker_call_s,
    }


def main() -> None:
    """Print the loads for growing clusters."""
    costs = Costs()
    clusters = [
        Cluster(num_hosts=hosts, actors_per_host=actors, block_bytes=2e6, plan_bytes=1e8)
        for hosts, actors in ((1, 10), (10, 10), (100, 10), (1000, 10), (1000, 100))
    ]
    results = [simulate(cluster, costs) for cluster in clusters]
    names = ["hosts", *(str(cluster.num_hosts) for cluster in clusters)]
    print("| " + " | ".join(names) + " |")
    print("|---" * len(names) + "|")
    for name in results[0]:
        figures = " | ".join(f"{result[name]:,.3g}" for result in results)
        print(f"| {name} | {figures} |")


if __name__ == "__main__":
    main()
