"""Program of a worker process, and of the fork server that workers are forked from.

It is run by its path, so it imports only the standard library before it has the parent's
`sys.path`.
"""

import fcntl
import io
import json
import os
import signal
import socket
import sys
import threading


def main() -> None:
    """Run a worker or the fork server on the two descriptors that the command line names."""
    role, descriptor, lifeline = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for inherited in (descriptor, lifeline):
        os.set_inheritable(inherited, False)
    die_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    sys.argv = ["gristmill-worker"]
    sys.path[:] = json.loads(os.environ.pop("GRISTMILL_WORKER_PATH"))
    if role == "worker":
        run(descriptor)
    else:
        serve(descriptor)


def run(channel: int) -> None:
    """Run a worker."""
    os.register_at_fork(after_in_child=lambda: os.closerange(channel, channel + 1))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # it ends by SIGKILL, which flushes nothing

    from gristmill._engine.executors.processes.worker_main import run_worker  # noqa: PLC0415 - needs that path

    run_worker(channel)


def serve(control: int) -> None:
    """Run the fork server."""
    from gristmill._engine.executors.processes import fork_server_main  # noqa: PLC0415 - as above

    def run_forked(channel: int, lifeline: int) -> None:
        die_with(lifeline)
        run(channel)

    with socket.socket(fileno=control) as connection:
        fork_server_main.serve(connection, run_forked)


def die_with(lifeline: int) -> None:
    """Let the kernel kill this process when the other end of the lifeline closes.

    A signal takes effect even if Python is busy in C code that holds the interpreter's lock.
    """
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(target=_exit_at_end_of, args=(lifeline,), daemon=True).start()
        return
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(lifeline, 1)
    except BlockingIOError:
        return
    os._exit(1)  # the other end was closed before the signal was set up


def _exit_at_end_of(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
