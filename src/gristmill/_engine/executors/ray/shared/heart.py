"""Heart of a reader of a shared pool: reports to the broker that the reader is alive."""

import contextlib
import pickle
import time
from typing import Any, final

from gristmill._engine.executors.ray.cluster.monitor import PING_INTERVAL_S
from gristmill._engine.executors.ray.shared.broker import PoolStatus

_BEAT_TIMEOUT_S = 2.0
"""How long the broker may take to answer a heartbeat."""


@final
class Heart:
    """Reports to the broker that a reader is alive, mostly from the thread of the monitor.

    Args:
        ray: The module.
        reader: The name of the reader.
    """

    def __init__(self, ray: Any, reader: str) -> None:
        self._ray = ray
        self.reader = reader
        self._broker: Any = None
        self.waited_s = 0.0
        """For how long the consumer has waited. Only its thread changes it."""
        self._reported_at, self._reported_s, self._share = time.monotonic(), 0.0, 0.0
        self.status = PoolStatus(num_workers=0, workers=())
        """What the broker answered last."""

    def listen(self, broker: Any, num_workers: int) -> None:
        """Begin to report to a broker."""
        self._broker = broker
        self.status = PoolStatus(num_workers=num_workers, workers=self.status.workers)

    def beat(self) -> None:
        """Report that, and for what share of the last second or so the consumer waited."""
        now, waited_s = time.monotonic(), self.waited_s
        if now - self._reported_at >= PING_INTERVAL_S / 2:
            self._share = min(1.0, (waited_s - self._reported_s) / (now - self._reported_at))
            self._reported_at, self._reported_s = now, waited_s
        with contextlib.suppress(Exception):  # the broker is gone, or too busy
            answer = self._broker.beat.remote(self.reader, self._share)
            self.status = pickle.loads(self._ray.get(answer, timeout=_BEAT_TIMEOUT_S))
