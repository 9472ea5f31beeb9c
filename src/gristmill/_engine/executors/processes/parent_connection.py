"""The worker's connection to its parent, which any thread of the worker may use."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import final

from gristmill._engine.executors.ipc.channel import Channel
from gristmill._engine.executors.ipc.log_relay import RelayedLog
from gristmill._engine.executors.processes.messages import LogRelay, Message


@final
class ParentConnection:
    """Sends the messages of a worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._unsent_logs: deque[RelayedLog] = deque()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message, after the logs that are not yet sent."""
        with self._lock:
            self._send_logs()
            self._channel.send(message, descriptors)
        self._send_logs_unless_busy()

    def send_log(self, log: RelayedLog) -> None:
        """Send a log record or a warning, or leave it to the thread that is sending. Never waits.

        The garbage collector may run in the middle of `send`, and what it finalizes may warn. Then
        this thread already holds the lock.
        """
        self._unsent_logs.append(log)
        self._send_logs_unless_busy()

    def _send_logs_unless_busy(self) -> None:
        while self._unsent_logs and self._lock.acquire(blocking=False):
            try:
                self._send_logs()
            finally:
                self._lock.release()

    def _send_logs(self) -> None:
        while self._unsent_logs:
            self._channel.send(LogRelay(self._unsent_logs.popleft()))
