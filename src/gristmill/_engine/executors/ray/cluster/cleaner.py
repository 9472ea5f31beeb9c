"""Cleaner of a local cluster: a process that ends what is left of it when the program is killed.

The system ends the processes that the program has started, but not those that these have started:
some of them notice only after a minute. A program that connects in its main thread ends them when
it gets SIGTERM. Loaders connect in another thread, and no program can do anything on SIGKILL.
"""

import os
import sys

_PROGRAM = """\
import os, select, signal, sys

def belongs_to(pid, folder):
    with open(f"/proc/{pid}/cmdline") as file:
        if not file.read().startswith("ray::"):
            return False
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    return any(link.startswith(folder) for link in links)

try:
    select.select([os.pidfd_open(int(sys.argv[1]))], [], [])
except ProcessLookupError:
    pass
for name in os.listdir("/proc"):
    try:
        if name.isdigit() and belongs_to(name, sys.argv[2] + "/"):
            os.kill(int(name), signal.SIGKILL)
    except (OSError, UnicodeDecodeError):
        pass
"""
"""Waits for the end of a program, and ends the processes of Ray with files in a folder. It needs no
more than the standard library, and takes 10 MB."""


def end_with_program(session_folder: str) -> None:
    """Let a process of its own end a local cluster when this program is gone, however it ends.

    Only on Linux, where the system ends the other processes of the cluster.

    Args:
        session_folder: The folder with the logs of the cluster, which no other cluster has.
    """
    if sys.platform != "linux":
        return
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), session_folder]
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # In a session of its own: a signal to the process group of the program must not end it.
    os.posix_spawn(sys.executable, command, os.environ, file_actions=silent, setsid=True)
