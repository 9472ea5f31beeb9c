"""The fork server: a clean, single-threaded process that workers are forked from.

It imports NumPy, the code of a worker and the modules that plans refer to, once for all workers. A
worker that is forked from it starts in milliseconds and has those modules already.

A fork copies only the thread that calls it, and shares the offsets of open files. So a module that
starts a thread or leaves a file open when it is imported must not be imported here. Nor must JAX:
it is not safe to fork after it has started its threads. When such a module is found, the server
*retires*: it has been changed by it, so it forks no more workers, names the module, and ends with
the last of its workers. The parent starts another server, which leaves that module out.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import final

REQUEST_BYTES = 131_072
"""Limit on the length of a request, which is one packet."""

STATUS = struct.Struct("<i")
"""What the server writes to the status pipe of a worker: its process id, and later how it ended."""

REFUSED = -1
"""Written instead of the process id; the reason follows as JSON, up to the end of the pipe."""

_FORBIDDEN = ("jax", "jaxlib")

_WORKER_CODE = "gristmill._engine.executors.processes.worker_main"


class _ForbiddenImport(BaseException):
    """A module imports JAX. Not an `Exception`: a module that can do without must not notice."""


@final
class _JaxBarrier:
    """Stops the import of JAX."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise if the module is part of JAX; otherwise leave it to the other finders."""
        if name.partition(".")[0] in _FORBIDDEN:
            raise _ForbiddenImport
        return None


@final
class _RetiredError(Exception):
    """The server must fork no more workers."""

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(reason)
        self.module = module
        self.reason = reason


def serve(control: socket.socket, run_worker: Callable[[int, int], None]) -> None:
    """Fork workers on request until the parent closes the socket; then wait for the last of them.

    Args:
        control: Receives the requests. Each is one packet, a JSON list of modules, with six
            descriptors: the socket and the lifeline of the worker, its status pipe, its standard
            output and error, its folder.
        run_worker: Called in each worker with its socket and lifeline.
    """
    importlib.import_module(_WORKER_CODE)
    children = _Children()
    children.listen()
    barrier = _JaxBarrier()
    retired = _find_hazard("numpy")
    while True:
        children.wait_for(control)
        try:
            packet, descriptors, _, _ = socket.recv_fds(
                control, REQUEST_BYTES, 6, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:  # the parent ended while it sent a request
            break
        if not packet:
            break
        _enter_folder(descriptors.pop())
        try:
            if retired is not None:
                raise retired
            sys.meta_path.insert(0, barrier)
            try:
                for module in json.loads(packet):
                    _preload(module)
            finally:
                sys.meta_path.remove(barrier)
        except _RetiredError as error:
            retired = error
            _refuse(descriptors, error)
            continue
        gc.collect()
        gc.freeze()  # keeps the pages of what is imported shared: the collector writes to objects
        _fork(control, children, descriptors, run_worker)
    children.wait()


@final
class _Children:
    """The workers that are alive, and the pipes that report how they ended."""

    def __init__(self) -> None:
        self.status_pipes: dict[int, int] = {}
        self._waker, self._woken = os.pipe()[::-1]

    def listen(self) -> None:
        """Report workers that end from now on.

        A signal that comes right before a system call does not interrupt it, and Python would
        handle it only after the call: after the next request, which the parent does not send while
        it waits for the report. So the signal also writes to a pipe, which `wait_for` polls.
        """
        for end in (self._waker, self._woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self.reap)

    def wait_for(self, control: socket.socket) -> None:
        """Wait for a request, and report the workers that end until then."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while control.fileno() not in [descriptor for descriptor, _ in poll.poll()]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self.reap()

    def forget(self) -> None:
        """Close all pipes, in a worker."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in (self._waker, self._woken, *self.status_pipes.values()):
            os.close(pipe)

    def reap(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Report the workers that have ended."""
        for pid in list(self.status_pipes):
            # Another signal may interrupt this function, and report a worker first.
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._report(pid, status)

    def wait(self) -> None:
        """Wait until all workers have ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        while self.status_pipes:
            self._report(*os.waitpid(-1, 0))

    def _report(self, pid: int, status: int) -> None:
        pipe = self.status_pipes.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # the parent does not want to know
            os.write(pipe, STATUS.pack(os.waitstatus_to_exitcode(status)))
        os.close(pipe)


def _enter_folder(folder: int) -> None:
    """Go to a folder, in which workers start, and which may be in `sys.path` by a relative name."""
    with contextlib.suppress(OSError):  # it is not ours: as for the parent
        os.fchdir(folder)
    os.close(folder)


def _preload(module: str) -> None:
    """Import a module, unless that is impossible: then the worker raises the same error.

    Raises:
        _RetiredError: If the module must not be imported here.
    """
    if module in sys.modules:
        return
    before = _descriptors()
    try:
        importlib.import_module(module)
    except _ForbiddenImport:
        raise _RetiredError(module, f"{module} imports JAX") from None
    except BaseException:
        # A module that is imported half-way may have changed others.
        raise _RetiredError(module, f"{module} cannot be imported") from None
    found = _find_hazard(module, before=before)
    if found is not None:
        raise found


def _find_hazard(module: str, *, before: set[str] | None = None) -> _RetiredError | None:
    """Return why nothing can be forked after the import of a module, if so."""
    if len(os.listdir("/proc/self/task")) > 1:
        return _RetiredError(module, f"{module} starts threads when it is imported")
    if before is not None and _descriptors() - before:
        return _RetiredError(module, f"{module} leaves files open when it is imported")
    return None


def _descriptors() -> set[str]:
    """Return the open descriptors, with what they refer to."""
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found


def _refuse(descriptors: list[int], error: _RetiredError) -> None:
    line, lifeline, status, *streams = descriptors
    answer = json.dumps([error.module, error.reason]).encode()
    with contextlib.suppress(BrokenPipeError):
        os.write(status, STATUS.pack(REFUSED) + answer)
    for descriptor in (line, lifeline, status, *streams):
        os.close(descriptor)


def _fork(
    control: socket.socket,
    children: _Children,
    descriptors: list[int],
    run_worker: Callable[[int, int], None],
) -> None:
    line, lifeline, status, *streams = descriptors
    # A worker that ends at once must not be reaped before its pipe is noted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        _become_worker(control, children, descriptors, run_worker)
    children.status_pipes[pid] = status
    with contextlib.suppress(BrokenPipeError):
        os.write(status, STATUS.pack(pid))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for descriptor in (line, lifeline, *streams):
        os.close(descriptor)


def _become_worker(
    control: socket.socket,
    children: _Children,
    descriptors: list[int],
    run_worker: Callable[[int, int], None],
) -> None:
    """Run a worker in a fork of the server, and never return."""
    code = 1
    try:
        line, lifeline, status, *streams = descriptors
        children.forget()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        control.close()
        os.close(status)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
            os.close(stream)
        os.setpgid(0, 0)
        _reseed()
        run_worker(line, lifeline)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _reseed() -> None:
    """Seed the global generators again, as a new interpreter does (`random` does so itself)."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
