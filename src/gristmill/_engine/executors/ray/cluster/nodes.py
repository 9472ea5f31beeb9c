"""The nodes of a cluster: which of them an actor can run on, and whether they have room for it."""

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from gristmill.errors import WorkerError
from gristmill.options import RayOptions

_logger = logging.getLogger("gristmill")

LOST_FOR_S = 30.0
"""A lost node is not used for this long. By then Ray knows whether it is gone."""

_FULL_AFTER_S = 1.0
"""An actor that has room usually starts within about this time."""

_OCCUPIED_FACTOR = 3
"""Actors that would fit if nothing else ran may take this many times `start_timeout_s`: they may be
about to start, which takes seconds where all cores are busy."""


class ClusterView(NamedTuple):
    """What the head of a cluster has answered."""

    nodes: list[dict[str, Any]]
    """See `ray.nodes`."""
    available: Mapping[str, float]
    """See `ray.available_resources`."""
    asked_at: float
    """When it was asked, by `time.monotonic`."""


@final
class ClusterNodes:
    """Notes which nodes to avoid, and for how long no actor could start. It never asks the head.

    Args:
        options: What an actor reserves, and how long it may wait for room.
    """

    def __init__(self, options: RayOptions) -> None:
        self._start_timeout_s = options.start_timeout_s
        named = {"CPU": options.num_cpus, **options.resources}
        self.request = {name: amount for name, amount in named.items() if amount}
        """The resources of one actor, by name."""
        self._lost: dict[str, float] = {}
        self._refusals: dict[str, str] = {}
        self._unready_since = time.monotonic()

    def restart_timer(self) -> None:
        """Note that an actor is ready, or that the first one is about to start."""
        self._unready_since = time.monotonic()

    def lose(self, node_id: str) -> None:
        """Avoid a node for some time: its actors do not answer, and Ray does not know why yet."""
        self._lost[node_id] = self.next_try_at

    @property
    def next_try_at(self) -> float:
        """When a node that is lost now may be used again."""
        return time.monotonic() + LOST_FOR_S

    def avoided(self, view: ClusterView | None) -> set[str]:
        """Return the nodes that must not be used now: refused ones, and lost ones if others exist.

        Args:
            view: The cluster after the last loss.
        """
        refused = set(self._refusals)
        now = time.monotonic()
        recent = {node_id for node_id, until in self._lost.items() if now < until}
        return refused | recent if view and self._has_others(view, refused | recent) else refused

    def _has_others(self, view: ClusterView, avoided: set[str]) -> bool:
        nodes = [node for node in view.nodes if node["NodeID"] not in avoided]
        return has_node_for(nodes, self.request)

    def refuse(self, found: Mapping[str, str], versions: Mapping[str, str]) -> None:
        """Avoid a node that has other versions."""
        node, node_id = found["node"], found["node_id"]
        differences = ", ".join(
            f"{name} {found[name]} instead of {version}"
            for name, version in versions.items()
            if found[name] != version
        )
        self._refusals[node_id] = f"node {node} has {differences}"
        _logger.warning("Not using a node of the Ray cluster: %s.", self._refusals[node_id])

    def refusal_error(self, view: ClusterView) -> WorkerError | None:
        """Return an error if nodes were refused, and no other can be used."""
        if not self._refusals or self._has_others(view, set(self._refusals)):
            return None
        return WorkerError(
            f"No node of the Ray cluster can be used: {'; '.join(self._refusals.values())}. "
            "Install the same versions on all of them."
        )

    @property
    def is_overdue(self) -> bool:
        """Whether no actor could start for so long that the cluster may be full."""
        limit_s = min(_FULL_AFTER_S, self._start_timeout_s)
        return time.monotonic() - self._unready_since >= limit_s

    def is_full(self, view: ClusterView) -> bool:
        """Return whether the cluster has no room for an actor now."""
        return not num_free_slots(view.available, self.request)

    def explain_missing(self, view: ClusterView, num_wanted: int) -> str:
        """Return why fewer actors run than are wanted; nothing if there are nodes for all."""
        num_possible = num_slots(view.nodes, self.request)
        if num_possible >= num_wanted:
            return ""
        return (
            f"The Ray cluster has room for {num_possible} of {num_wanted} actors: each needs "
            f"{self._needed}, and {explain_room(view.nodes, self.request)}. The others start when "
            "nodes join. Reserve less with `num_cpus` or `resources`, or request fewer actors."
        )

    def room_error(self, view: ClusterView) -> WorkerError | None:
        """Return an error if no actor could start for so long that the cluster has no room."""
        waited_s = time.monotonic() - self._unready_since
        if waited_s < self._start_timeout_s:
            return None
        is_occupied = has_node_for(view.nodes, self.request)
        if is_occupied and waited_s < _OCCUPIED_FACTOR * self._start_timeout_s:
            return None
        self.restart_timer()
        return WorkerError(
            f"The Ray cluster has had no room for an actor for {waited_s:.0f} s. Each needs "
            f"{self._needed}, but {explain_room(view.nodes, self.request)}, of which others may "
            "use some. Add nodes, reserve less with `num_cpus` or `resources`, or wait longer with "
            "`start_timeout_s`."
        )

    @property
    def _needed(self) -> str:
        return ", ".join(f"{name} {amount:g}" for name, amount in self.request.items())


def num_free_slots(available: Mapping[str, float], request: Mapping[str, float]) -> int:
    """Return how many actors fit into the available resources.

    >>> num_free_slots({"CPU": 7.0, "disk": 2.0}, {"CPU": 2.0, "disk": 1.0})
    2

    An actor that reserves nothing counts like one that reserves a CPU.

    >>> num_free_slots({"CPU": 7.0}, {})
    7
    """
    needed = request or {"CPU": 1.0}
    return min(int(available.get(name, 0.0) / amount) for name, amount in needed.items())


def num_slots(nodes: list[dict[str, Any]], request: Mapping[str, float]) -> int:
    """Return how many actors the nodes would have room for if nothing else ran on them.

    >>> num_slots([{"Alive": True, "Resources": {"CPU": 3.0}}] * 2, {"CPU": 2.0})
    2
    """
    return sum(num_free_slots(node["Resources"], request) for node in nodes if node["Alive"])


def explain_room(nodes: list[dict[str, Any]], request: Mapping[str, float]) -> str:
    """Describe what the nodes of a cluster have of the resources that an actor needs.

    >>> explain_room([{"Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}}],
    ...     {"CPU": 4.0})
    '10.0.0.1 has CPU 2'
    """
    described = [
        f"{node['NodeManagerAddress']} has "
        + ", ".join(f"{name} {node['Resources'].get(name, 0.0):g}" for name in request)
        for node in nodes
        if node["Alive"]
    ]
    shown = described[:5]
    return "; ".join(shown) + ("; ..." if len(described) > len(shown) else "")


def has_node_for(nodes: list[dict[str, Any]], request: Mapping[str, float]) -> bool:
    """Return whether a node would have room for an actor if nothing else ran on it."""
    return any(
        all(node["Resources"].get(name, 0.0) >= amount for name, amount in request.items())
        for node in nodes
        if node["Alive"]
    )
