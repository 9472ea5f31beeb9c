"""Cluster monitor: a thread that asks the head of the cluster whether it is there, and for room.

A request to a head that is gone does not return for a minute. So it must not be made in the thread
that feeds the user's loop.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, final

from gristmill._base.threads.background import Background
from gristmill._engine.executors.ray.cluster.nodes import ClusterView, num_free_slots
from gristmill.errors import WorkerError

PING_INTERVAL_S = 1.0
"""Time between two requests to the head."""

LOST_AFTER_S = 5.0
"""The head is gone when it has not answered for this long."""


@final
class ClusterMonitor:
    """Asks the head of the cluster every second, from a thread. Its methods take no lock.

    Args:
        ray: The module, connected to the cluster.
        request: The resources that one actor reserves.
        wants_room: Whether to ask for the room, too, which costs the head more.
        beat: Called after each answer, if given.
    """

    def __init__(
        self,
        ray: Any,
        request: Mapping[str, float],
        *,
        wants_room: bool = False,
        beat: Callable[[], object] | None = None,
    ) -> None:
        self._beat = beat
        self._ray = ray
        self._cluster = ray.get_runtime_context().gcs_address
        self._request = request
        self._wants_room = wants_room
        self._is_stopped = False
        self._pokes: SimpleQueue[None] = SimpleQueue()
        self._to_kill: deque[Any] = deque()
        self.answered_at = 0.0
        """When the head last answered."""
        self._asked_at: float | None = None
        self._view: ClusterView | None = None
        self._is_view_wanted = False
        self.num_free = 0
        """How many more actors the cluster has room for, as of the last answer."""
        self._thread: Background | None = None

    @property
    def is_connected(self) -> bool:
        """Whether this process is still connected to the cluster."""
        ray = self._ray
        return ray.is_initialized() and ray.get_runtime_context().gcs_address == self._cluster

    @property
    def is_started(self) -> bool:
        """Whether the thread was started."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread = Background(self._watch, name="gristmill-ray-monitor")
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end when it has killed what it has to, without waiting for it."""
        self._is_stopped = True
        self.ask()

    def ask(self) -> None:
        """Ask the head at once."""
        self._pokes.put(None)

    def kill(self, handle: Any) -> None:
        """End an actor from the thread: the call waits for the head. Then ask the head at once."""
        self._to_kill.append(handle)
        self.ask()

    @property
    def is_responsive(self) -> bool:
        """Whether the head answers at once, so that creating an actor does not block."""
        asked_at = self._asked_at
        return asked_at is None or time.monotonic() - asked_at < PING_INTERVAL_S

    def view_since(self, moment: float) -> ClusterView | None:
        """Return the nodes and what is free, as of some time after a moment.

        Returns:
            The view; `None` if there is none yet. The head is asked for one then.
        """
        view = self._view
        if view is not None and view.asked_at >= moment:
            return view
        if not self._is_view_wanted:
            self._is_view_wanted = True
            self.ask()
        return None

    def lost_error(self) -> WorkerError | None:
        """Return an error if the cluster is gone: its head is silent, or this process has left."""
        if not self.is_connected:
            return WorkerError(
                "`ray.shutdown()` was called while a Ray cluster computed elements. Call it after "
                "the last element."
            )
        asked_at = self._asked_at
        if asked_at is None or time.monotonic() - asked_at <= LOST_AFTER_S:
            return None
        return WorkerError(
            f"The head of the Ray cluster has not answered for {LOST_AFTER_S:g} s. Save the state "
            "of the iterator, and start again when the cluster is back; a state also works without "
            "Ray."
        )

    def _watch(self) -> None:
        while self.is_connected:
            is_last = self._is_stopped
            if is_last and not self._to_kill:
                return
            with contextlib.suppress(Exception):  # it stays silent
                self._ask()
            if is_last:
                return
            with contextlib.suppress(Empty):
                self._pokes.get(timeout=PING_INTERVAL_S)

    def _ask(self) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        if self._wants_room:
            self.num_free = num_free_slots(self._ray.available_resources(), self._request)
        else:  # the cheapest request
            self._ray.experimental.internal_kv._internal_kv_exists(b"gristmill")  # noqa: SLF001
        if self._is_view_wanted:
            asked_at = time.monotonic()
            self._view = ClusterView(
                self._ray.nodes(), self._ray.available_resources(), asked_at=asked_at
            )
            self._is_view_wanted = False
        self._asked_at, self.answered_at = None, time.monotonic()
        if self._beat is not None and not self._is_stopped:
            self._beat()
        while self._to_kill:
            with contextlib.suppress(Exception):  # it is dead
                self._ray.kill(self._to_kill.popleft(), no_restart=True)
