"""Channel: small messages between the parent and a worker, with file descriptors, over a socket.

Each message is a header, that is a fixed signature and the length, followed by a pickle. User code
in a worker may write to any descriptor by mistake. Thanks to the signature such bytes are an error
at once, not a length that is waited for.
"""

import array
import contextlib
import errno
import os
import pickle
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import final

_SIGNATURE = b"\x93gm\n"
_HEADER = struct.Struct(f"<{len(_SIGNATURE)}sQ")
_READ_BYTES = 65_536
_MAX_DESCRIPTORS = 64
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class InvalidMessageError(Exception):
    """The other end sent something that is not a message. The channel cannot be used any more."""


@final
class Channel:
    """One end of a connection. Messages are pickled by the standard `pickle`."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()
        self._has_ended = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message.

        Args:
            message: The message.
            descriptors: File descriptors to pass along. They stay open here.

        Raises:
            ConnectionError: The other end is closed.
        """
        data = frame(pickle.dumps(message, protocol=5))
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            data = data[self._socket.sendmsg([data], rights) :]
        self._socket.sendall(data)

    def receive(self) -> object | None:
        """Wait for a message and return it; return `None` if the other end is closed.

        Raises:
            InvalidMessageError: There are bytes that are not a message.
        """
        while True:
            message = self._take()
            if message is not None or self._has_ended:
                return message
            self._read(0)

    def receive_ready(self) -> Iterator[object]:
        """Yield the messages that have arrived, without waiting.

        Raises:
            InvalidMessageError: The bytes after the last message are not a message.
            OSError: Descriptors were lost because this process has too many open files.
        """
        self._read(socket.MSG_DONTWAIT)
        while (message := self._take()) is not None:
            yield message

    @property
    def has_ended(self) -> bool:
        """Whether the other end is closed, and all its messages were received."""
        return self._has_ended

    @property
    def is_closed_by_peer(self) -> bool:
        """Whether the other end is closed, even if there are messages that were not received."""
        poll = select.poll()
        poll.register(self._socket, 0)
        return self._has_ended or bool(poll.poll(0))  # the system adds only POLLHUP and errors

    @property
    def has_data(self) -> bool:
        """Whether bytes have arrived that were not read, from any process that has the socket."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not self._has_ended and bool(poll.poll(0))

    def take_descriptor(self) -> int:
        """Return the next descriptor that was passed along, in the order of sending."""
        if not self._descriptors:
            raise InvalidMessageError("A message refers to a descriptor that did not come along.")
        return self._descriptors.popleft()

    def close(self) -> None:
        """Close this end, and the descriptors that were not taken."""
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _read(self, flags: int) -> None:
        space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, message_flags, _ = self._socket.recvmsg(
                _READ_BYTES, space, flags | _CLOSE_ON_EXEC
            )
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary, message_flags = b"", [], 0
        for level, kind, rights in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(rights[: len(rights) - len(rights) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if message_flags & socket.MSG_CTRUNC:  # descriptors are missing, which messages refer to
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._bytes += data
        self._has_ended = not data

    def _take(self) -> object | None:
        """Return the first message that was read, or `None` if it is not complete."""
        start = bytes(self._bytes[: len(_SIGNATURE)])
        if not _SIGNATURE.startswith(start):
            raise InvalidMessageError(f"A message starts with {start!r}.")
        if len(self._bytes) < _HEADER.size:
            return None
        _, length = _HEADER.unpack_from(self._bytes)
        end = _HEADER.size + length
        if len(self._bytes) < end:
            return None
        body = bytes(memoryview(self._bytes)[_HEADER.size : end])
        del self._bytes[:end]
        try:
            message = pickle.loads(body)
        except Exception as error:  # pickle raises almost any type
            raise InvalidMessageError("A message cannot be unpickled.") from error
        if message is None:
            raise InvalidMessageError("A message is `None`.")
        return message


def frame(body: bytes) -> bytes:
    """Return the bytes to send for a pickled message."""
    return _HEADER.pack(_SIGNATURE, len(body)) + body


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


@final
class Permits:
    """The permits of one worker to begin the tasks in its queue, in the parent.

    The parent adds one permit for each task that it sends. The worker takes one before it begins a
    task, and the parent takes back those of tasks that another worker is to compute. The permits
    are the bytes in a pipe that both read: the kernel passes each byte to one of them, so that no
    task is computed twice, even while the worker is busy in code that holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self._ends: tuple[int, ...] = os.pipe()
        os.set_blocking(self._ends[0], False)

    @property
    def descriptor(self) -> int:
        """The descriptor to pass to the worker, for `take_permits`."""
        return self._ends[0]

    def add(self) -> None:
        """Permit one more task. Call this before the task is sent."""
        os.write(self._ends[1], b"\0")

    def take_back(self, max_count: int) -> int:
        """Take back the permits of at most `max_count` tasks, the last in the worker's queue.

        The next message to the worker must withdraw these tasks.

        Returns:
            The number of tasks, which the worker has not begun and will not begin. 0 after
            `close`.
        """
        return take_permits(self._ends[0], max_count) if self._ends else 0

    def close(self) -> None:
        """Close the parent's descriptors."""
        ends, self._ends = self._ends, ()
        for end in ends:
            os.close(end)


def take_permits(descriptor: int, max_count: int) -> int:
    """Take at most `max_count` permits, without waiting; return their number."""
    try:
        return len(os.read(descriptor, max_count))
    except BlockingIOError:
        return 0
