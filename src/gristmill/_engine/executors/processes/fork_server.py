"""The parent's side of the fork server: starts it, and asks it for workers.

There is one server for each set of environment variables. It is started with the first worker and
lives as long as this process, however that ends. Requests need no lock: each is one packet.
Each worker has a pipe of its own, on which the server reports its process id and how it ended.
"""

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gristmill._engine.executors.processes.fork_server_main import REFUSED, REQUEST_BYTES, STATUS
from gristmill._engine.executors.processes.inherited_state import LoadedModules

BOOTSTRAP = Path(__file__).with_name("worker_bootstrap.py")
"""Run as a program in a clean interpreter, without the user's `__main__`."""

_START_TIMEOUT_MS = 100
"""How long to wait at the end for a process that the server was only just asked for."""

MAX_REFUSALS = 8
"""After this many servers that had to retire because of modules of a plan, its workers are no
longer forked."""


@final
@dataclass(frozen=True)
class Refusal:
    """Why the server did not fork a worker."""

    modules: tuple[str, ...]
    """The modules that must not be imported before a fork; empty if they are not known."""
    reason: str


@final
class ForkedProcess:
    """A worker that the server forks. It dies when its lifeline is closed."""

    def __init__(self, server: "ForkServer", status: int, modules: Sequence[str]) -> None:
        self._owner = os.getpid()
        self._exit_code: int | None = None
        self._server = server
        self._modules = modules
        self._status = os.fdopen(status, "rb", buffering=0)
        self._reading = threading.RLock()
        """Held while the pipe is read: two threads may close a pool at the same time. The garbage
        collector may close it in the thread that holds this, so that thread may enter again."""
        self._pid: int | None = None
        self._is_reported = True
        """Whether the server can still report that the process has ended."""
        self.refusal: Refusal | None = None
        """Why the server did not fork it. Known after `wait`."""

    @property
    def pid(self) -> int:
        """Its process id; 0 if the server did not fork it. Waits until the server has tried."""
        with self._reading:
            if self._pid is None:
                self._pid = 0
                number = self._read_number()
                if number == REFUSED:
                    self._note_refusal()
                elif number is not None:
                    self._pid = number
                    self._server.imported.update(self._modules)
                elif not self._status.closed:
                    self._note_death()
        return self._pid

    @property
    def end_descriptor(self) -> int | None:
        """The pipe on which the server reports the end, or `None` if the server is gone."""
        return self._status.fileno() if self._is_reported and not self._status.closed else None

    def has_ended(self) -> bool:
        """Return whether the server has reported the end of the process, without waiting."""
        if os.getpid() != self._owner:
            return False
        with self._reading:
            while self._exit_code is None and self.end_descriptor is not None:
                if not self._has_news(0):
                    return False
                if self._pid is None and self.pid:
                    continue
                if not self._pid:  # never started
                    return True
                self._exit_code = self._read_number()
                self._is_reported = self._exit_code is not None
        return self._exit_code is not None

    def kill(self) -> None:
        """Do nothing: it dies when its lifeline is closed."""

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` if that is not known.

        A process that the server has not forked yet is not waited for: it ends as it begins.
        """
        if os.getpid() != self._owner:
            return None
        with self._reading:
            if self._exit_code is None and not self._status.closed:
                is_forked = self._pid is not None or self._has_news(_START_TIMEOUT_MS)
                if is_forked and self.pid:
                    self._exit_code = self._read_number()
        return self._exit_code

    def _has_news(self, timeout_ms: int) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    def close(self) -> None:
        """Close the pipe."""
        if os.getpid() != self._owner:  # a thread that the fork does not have may hold the lock
            self._status.close()
            return
        with self._reading:
            self._status.close()

    def _note_refusal(self) -> None:
        answer = b"".join(iter(lambda: self._status.read(4096), b""))
        module, reason = json.loads(answer)
        self.refusal = Refusal((module,), reason)
        self._server.retire(self.refusal)

    def _note_death(self) -> None:
        """Suspect the modules that the server was asked to import when it died."""
        suspects = tuple(
            module
            for module in self._modules
            if module not in self._server.imported and not module.startswith("gristmill.")
        )
        during = f" while it imported {', '.join(suspects)}" if suspects else ""
        self.refusal = Refusal(suspects, f"the fork server died{during}")
        self._server.retire(self.refusal)

    def _read_number(self) -> int | None:
        """Read what the server reports next; `None` if it is gone."""
        data = b""
        while len(data) < STATUS.size:
            try:
                more = self._status.read(STATUS.size - len(data))
            except ValueError:  # the garbage collector has closed the pipe
                return None
            if not more:
                return None
            data += more
        return STATUS.unpack(data)[0]


@final
class ForkServer:
    """A fork server, and the sockets and pipes between it and this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._modules = LoadedModules()
        self.imported: set[str] = set()
        """The modules that it has imported for its workers, as far as this is known."""
        self._control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline, held_end = os.pipe()
        self._lifeline = [held_end]
        try:
            self._process = subprocess.Popen(
                [*interpreter(), "-P", BOOTSTRAP, "serve", str(server_end.fileno()), str(lifeline)],
                pass_fds=(server_end.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                env=environment,
                process_group=0,  # the terminal sends Ctrl-C to the parent only
            )
        except OSError:
            self.close_descriptors()
            raise
        finally:
            server_end.close()
            os.close(lifeline)

    @property
    def is_usable(self) -> bool:
        """Whether it may fork workers: it is alive, has not retired, and has no outdated code."""
        return self._is_open and not self.has_ended and not self._modules.have_changed()

    @property
    def _is_open(self) -> bool:
        """Whether it gets requests: not in a fork of this process."""
        return self._control.fileno() >= 0

    def fork(self, line: int, lifeline: int, modules: Collection[str]) -> ForkedProcess:
        """Ask for a worker; return at once.

        Args:
            line: The worker's end of its socket.
            lifeline: The pipe whose other end keeps the worker alive.
            modules: What the server imports before it forks the worker.

        Raises:
            ConnectionError: If the server is gone.
            OSError: If this process can open no more files.
        """
        reading, writing = os.pipe()
        chosen = _within_limit(modules)
        try:
            with _current_folder() as folder:
                descriptors = [line, lifeline, writing, _stream(1), _stream(2), folder]
                request = json.dumps(chosen).encode()
                socket.send_fds(self._control, [request], descriptors)
        except BaseException as error:
            os.close(reading)
            if isinstance(error, OSError) and not self._is_open:  # another thread has retired it
                raise ConnectionResetError(error.errno, error.strerror) from error
            raise
        finally:
            os.close(writing)
        return ForkedProcess(self, reading, chosen)

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self._process.poll() is not None

    def retire(self, refusal: Refusal | None = None) -> None:
        """Ask it for no more workers. It ends with the last one that it has.

        Args:
            refusal: What it imported that must not be imported before a fork, if that is why.
        """
        if self._is_open:
            self._control.close()
            if refusal is not None:
                _refusals.append(refusal)

    def close_descriptors(self) -> None:
        """Close all descriptors; without its lifeline, the server dies."""
        self._control.close()
        with contextlib.suppress(IndexError):
            os.close(self._lifeline.pop())

    def end(self) -> None:
        """End the server. Its workers live on."""
        self.close_descriptors()
        self._process.wait()


_servers: list[ForkServer] = []
"""All servers that were started: the lifeline of each is open as long as this process lives."""

_refusals: list[Refusal] = []


def fork_server(environment: Mapping[str, str], modules: Collection[str] = ()) -> ForkServer | None:
    """Return the fork server for an environment, starting it if necessary.

    Args:
        environment: The environment variables of the workers.
        modules: What the plan refers to.

    Returns:
        `None` if workers cannot be forked; `why_not_forked` returns the reason.
    """
    if why_not_forked(modules) is not None:
        return None
    for server in list(_servers):
        if server.is_usable and server.environment == environment:
            return server
        server.retire()
        if server.has_ended:
            server.close_descriptors()
            with contextlib.suppress(ValueError):  # another thread does the same
                _servers.remove(server)
    server = ForkServer(environment)
    if not _servers:
        atexit.register(_end_all)
    _servers.append(server)
    return server


def why_not_forked(modules: Collection[str] = ()) -> str | None:
    """Return why workers are started as new interpreters instead of being forked, if so.

    Args:
        modules: What the plan refers to. Those of other plans do not matter.
    """
    if sys.platform != "linux":
        return "only Linux has what the fork server needs"
    if not os.path.isdir("/proc/self/task"):
        return "the fork server needs /proc, to see the threads of modules"
    if any("numpy" in refusal.modules for refusal in _refusals):
        return "NumPy starts threads; OPENBLAS_NUM_THREADS=1 prevents that"
    reasons = [
        refusal.reason
        for refusal in _refusals
        if not refusal.modules or not set(refusal.modules).isdisjoint(modules)
    ]
    return "; ".join(dict.fromkeys(reasons)) if len(reasons) >= MAX_REFUSALS else None


def left_out() -> dict[str, str]:
    """Return the modules that a fork server must not import, each with the reason."""
    return {module: refusal.reason for refusal in _refusals for module in refusal.modules}


def interpreter() -> list[str]:
    """Return the command that starts an interpreter like this one, as `multiprocessing` does."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # pyright: ignore # noqa: SLF001
    return [sys.executable, *flags]


def _within_limit(modules: Collection[str]) -> list[str]:
    """Return as many of the modules as fit a request, without those that must be left out."""
    chosen: list[str] = []
    size = len("[]")
    for module in sorted(set(modules) - left_out().keys()):
        size += len(json.dumps(module)) + 2
        if size > REQUEST_BYTES:
            break
        chosen.append(module)
    return chosen


@contextlib.contextmanager
def _current_folder() -> Generator[int]:
    """Open the current folder, whose name may not exist any more."""
    try:
        folder = os.open(".", os.O_PATH)
    except OSError:  # not ours
        folder = os.dup(_null())
    try:
        yield folder
    finally:
        os.close(folder)


def _stream(number: int) -> int:
    """Return the descriptor of standard output or error, or of an empty file if it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return _null()
    return number


def _null() -> int:
    global _null_descriptor
    if _null_descriptor is None:
        _null_descriptor = os.open(os.devnull, os.O_RDWR)
    return _null_descriptor


_null_descriptor: int | None = None


def _end_all() -> None:
    while _servers:
        _servers.pop().end()


def _forget_after_fork() -> None:
    """Close the lifelines in a fork: else servers would outlive the process that started them."""
    while _servers:
        _servers.pop().close_descriptors()


os.register_at_fork(after_in_child=_forget_after_fork)
