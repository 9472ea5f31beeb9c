"""A Unix socket over which another process of the same user reads what its runs do."""

import contextlib
import json
import os
import socket
import stat
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any, final

from gristmill._api.monitoring.report import ReportedRun, run_records
from gristmill._api.monitoring.watched import WATCHED, Watched
from gristmill._base.log_once import log_once
from gristmill.errors import PlanError

MAX_ANSWER_BYTES = 2**24

_PAUSE_S = 0.1
"""After an error, so that one that lasts takes no processor time."""


def monitor_folder() -> Path:
    """Return the folder of the sockets of this user, which only this user can enter.

    Raises:
        PlanError: Another user has made it, others can enter it, or it cannot be made.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"gristmill-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from None
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not is_private or found.st_uid != os.getuid():
        raise PlanError(
            f"The folder {str(folder)!r} must belong to you, and to no other user, but does not. "
            "Remove it, or set `XDG_RUNTIME_DIR` to a folder of your own."
        )
    return folder


def _unusable(path: Path, error: OSError) -> PlanError:
    return PlanError(
        f"The path {str(path)!r} cannot be used to watch processes: {error.strerror or error}. Set "
        "`XDG_RUNTIME_DIR` to a folder of your own that exists and has a short path."
    )


def socket_path(pid: int) -> Path:
    """Return the path of the socket of a process."""
    return monitor_folder() / f"{pid}.sock"


@final
class Monitor:
    """Answers each connection with the records of the runs of this process, as JSON.

    Args:
        watched: What it answers for.
    """

    def __init__(self, watched: Watched | None = None) -> None:
        self._watched = Watched() if watched is None else watched
        self._lock = threading.Lock()
        self._path: Path | None = None

    def watch(self, source: object) -> Path:
        """Include a source, for as long as it exists, and return the path of the socket.

        Args:
            source: A loader, an iterator, a feed, or a dataset, which stands for its iterators.

        Raises:
            PlanError: The socket cannot be made.
        """
        with self._lock:
            self._watched.add(source)
            path = socket_path(os.getpid())  # a fork has another one
            if self._path != path or not path.exists():
                try:
                    self._path = self._listen(path)
                except OSError as error:
                    raise _unusable(path, error) from None
            return path

    def _listen(self, path: Path) -> Path:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of an earlier process with this number
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.bind(str(path))  # the folder keeps others out until the mode is set
            path.chmod(0o600)
            server.listen(4)
        except OSError:
            server.close()
            raise
        threading.Thread(
            target=self._serve, args=(server,), name="gristmill-monitor", daemon=True
        ).start()
        weakref.finalize(self, _remove, path, os.getpid())
        return path

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5.0)
                    connection.sendall(json.dumps(self.records()).encode())
            except Exception as error:  # such as too many open files: the next one is answered
                log_once(
                    f"monitor {type(error).__name__}",
                    "The statistics could not be sent to another process: %s: %s",
                    type(error).__name__,
                    error,
                )
                time.sleep(_PAUSE_S)

    def watch_if_possible(self, source: object) -> None:
        """Watch a source because the environment asks for it. If that fails, training continues."""
        try:
            self.watch(source)
        except PlanError as error:
            log_once("monitor", "This process cannot be watched: %s", error)

    def records(self) -> list[dict[str, Any]]:
        """Return the title, the statistics, the settings and the last blocks of each run."""
        runs = [one for one in self._watched if isinstance(one, ReportedRun)]
        return run_records(runs)


MONITOR = Monitor(WATCHED)
"""The monitor of this process. It does nothing before something is watched."""


def read_records(pid: int, *, timeout_s: float = 5.0) -> object:
    """Return the records of another process.

    Raises:
        PlanError: The process has no socket, or does not answer.
    """
    path = socket_path(pid)
    answer = bytearray()
    deadline = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            while chunk := client.recv(65536):
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                    raise OSError("the answer does not end")
        return json.loads(answer)
    except (OSError, ValueError, RecursionError):
        raise PlanError(
            f"Process {pid} cannot be watched: it has ended, belongs to another user, or was "
            "started without `GRISTMILL_MONITOR=1` and has not called `monitor()` of what it "
            "iterates over."
        ) from None


def watched_pids() -> list[int]:
    """Return the processes of this user that have a socket."""
    names = [path.stem for path in monitor_folder().glob("*.sock")]
    return sorted(int(name) for name in names if name.isdecimal() and _is_alive(int(name)))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork
        with contextlib.suppress(OSError):
            path.unlink()
