"""Messages between the parent and a worker: small ones, with file descriptors, over a socket."""

import array
import contextlib
import errno
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, final

_LENGTH = struct.Struct("<Q")
_READ_BYTES = 65_536
_MOST_DESCRIPTORS = 64
_CLOSED_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@final
class Channel:
    """One end of the line. What it is given must be picklable by the plain `pickle`."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()
        self._has_ended = False

    def fileno(self) -> int:
        """Give the descriptor to wait on."""
        return self._line.fileno()

    def send(self, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
        """Send a message. The descriptors stay open here."""
        body = pickle.dumps(message, protocol=5)
        data = _LENGTH.pack(len(body)) + body
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            data = data[self._line.sendmsg([data], rights) :]
        self._line.sendall(data)

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for a message; `None` when the other end is gone."""
        while True:
            message = self._take()
            if message is not None or self._has_ended:
                return message
            self._read(0)

    def receive_ready(self) -> list[tuple[Any, ...]]:
        """Give the messages that are there, without waiting."""
        self._read(socket.MSG_DONTWAIT)
        messages: list[tuple[Any, ...]] = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    @property
    def has_ended(self) -> bool:
        """Whether the other end is gone, and all that it sent was received."""
        return self._has_ended

    def take_descriptor(self) -> int:
        """Give the next descriptor that came along: in the order they were sent."""
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close this end, and the descriptors that nobody took."""
        self._line.close()
        while self._descriptors:
            socket.close(self._descriptors.popleft())

    def _read(self, flags: int) -> None:
        space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, told, _ = self._line.recvmsg(
                _READ_BYTES, space, flags | _CLOSED_ON_EXEC
            )
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary, told = b"", [], 0
        for level, kind, rights in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(rights[: len(rights) - len(rights) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if told & socket.MSG_CTRUNC:  # and what came without them cannot be understood
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._bytes += data
        self._has_ended = not data

    def _take(self) -> tuple[Any, ...] | None:
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        message = pickle.loads(memoryview(self._bytes)[_LENGTH.size : end])
        del self._bytes[:end]
        return message


@final
class Waker:
    """Wakes a thread that polls: a pair of sockets, of which one becomes readable."""

    def __init__(self) -> None:
        self._ends: tuple[socket.socket, ...] = ()

    def open(self) -> None:
        """Create the sockets, unless they exist."""
        if not self._ends:
            self._ends = socket.socketpair()
            for end in self._ends:
                end.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._ends[1].fileno()

    def wake(self) -> None:
        """Make the descriptor readable. Any thread may call this."""
        for end in self._ends[:1]:
            with contextlib.suppress(OSError):  # full: the thread wakes anyway; closed: no thread
                end.send(b"\0")

    def clear(self) -> None:
        """Make the descriptor wait for the next `wake`."""
        self._ends[1].recv(4096)

    def close(self) -> None:
        """Close the sockets."""
        for end in self._ends:
            end.close()
