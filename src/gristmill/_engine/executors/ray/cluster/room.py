"""Room: whether a cluster has room for all actors of a pool, and the error if it has none."""

import logging
import time
from typing import final

from gristmill._engine.executors.ray.cluster.monitor import ClusterMonitor
from gristmill._engine.executors.ray.cluster.nodes import ClusterNodes, ClusterView

_logger = logging.getLogger("gristmill")

_VIEW_INTERVAL_S = 2.0
"""How old a view may be that shows what is free: making one costs the head more than a ping."""


@final
class ClusterRoom:
    """Explains which actors have no room. It never waits for the head.

    Args:
        monitor: Asks the head.
        nodes: What an actor needs, and for how long none could start.
    """

    def __init__(self, monitor: ClusterMonitor, nodes: ClusterNodes) -> None:
        self._monitor = monitor
        self._nodes = nodes
        self._num_explained = -1
        """The number of actors for which `missing` explains why there are no more."""
        self.missing = ""
        """Why fewer actors run than are wanted, if there are not nodes for all."""

    def explain(self, *, num_ready: int, num_wanted: int) -> str:
        """Return why fewer actors run than are wanted, if that is known, and log it once."""
        if num_ready == num_wanted:
            self.missing = ""
        elif num_ready != self._num_explained and (view := self.view):
            self._num_explained = num_ready
            missing = self._nodes.explain_missing(view, num_wanted)
            if missing and not self.missing:
                _logger.warning("%s", missing)
            self.missing = missing
        return self.missing

    @property
    def view(self) -> ClusterView | None:
        """What the cluster is like now, as soon as the head has answered."""
        return self._monitor.view_since(time.monotonic() - _VIEW_INTERVAL_S)
