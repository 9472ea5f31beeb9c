"""A program that ends in any way ends its workers, and prints no more than it must."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import (
    fork_servers_of,
    gone,
    is_alive,
    is_idle,
    is_stopped,
    kill_quietly,
    until,
    waits_to_send,
)
from tests.faults.scripts import Done, Script

Run = Callable[..., Script]

PROGRAM = """
    import ctypes, logging, os, pathlib, sys, threading, time
    import numpy as np
    from gristmill import Batch, DataLoader, IndexSampler

    def look_busy(name):
        pathlib.Path(f"{{name}}-{{os.getpid()}}").touch()

    def step(n):
        if n > 3 and {trouble!r} == "in Python":
            look_busy("busy")
            while True:
                pass
        if n > 3 and {trouble!r} == "in C with the interpreter's lock":
            look_busy("busy")
            ctypes.PyDLL(None).sleep(60)
        if n > 3 and {trouble!r} == "in C without the lock":
            look_busy("busy")
            ctypes.CDLL(None).sleep(60)
        if n > 3 and {trouble!r} == "waiting":
            look_busy("busy")
            threading.Event().wait()
        if n > 3 and {trouble!r} == "sending":
            look_busy("busy")
            while True:
                logging.getLogger("flood").warning("x" * 10_000)
        return np.full(1000, n)

    logging.getLogger("flood").addHandler(logging.NullHandler())
    logging.getLogger("flood").propagate = False
    loader = DataLoader(
        data_source=range(10**6),
        sampler=IndexSampler(10**6, num_epochs=1),
        operations=[step, Batch(4)],
        worker_count=2,
    )
    iterator = iter(loader)
    next(iterator)
    print("ready", flush=True)
    {then}
"""

WAIT = "sys.stdin.readline()"
READ = "for batch in iterator: pass"
TROUBLES = [
    "in Python",
    "in C with the interpreter's lock",
    "in C without the lock",
    "waiting",
]


def program(then: str, trouble: str = "") -> str:
    """Return a program with two workers; they get into trouble when there is more to read."""
    return PROGRAM.format(then=then, trouble=trouble)


def start(script: Run, then: str, trouble: str = "") -> Script:
    """Start it, and wait until the workers have what they are to have."""
    running = script(program(then, trouble))
    running.wait_for("ready")
    if trouble:
        folder = running.path.parent
        until(lambda: len(list(folder.glob("busy-*"))) == 2, "both workers are in trouble")
    until(lambda: len(running.workers) == 2, "two workers run")
    running.look()
    return running


def assert_workers_gone(running: Script) -> None:
    """Wait until the workers and the fork server are gone."""
    until(gone(running.family), "the workers and the fork server are gone")


def assert_one_traceback(err: str, error: str) -> None:
    """Check that there is one traceback on standard error and nothing else."""
    lines = err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith(error)
    assert all(line.startswith("  ") for line in lines[1:-1])


@pytest.mark.parametrize("trouble", ["", "in Python", "in C with the interpreter's lock"])
def test_ctrl_c_yields_one_traceback_and_ends_the_workers(script: Run, trouble: str):
    running = start(script, READ, trouble)

    running.send_to_group(signal.SIGINT)
    done = running.finish()

    assert done.code == -signal.SIGINT
    assert_one_traceback(done.err, "KeyboardInterrupt")
    assert_workers_gone(running)


def test_ctrl_c_while_the_workers_start_yields_one_traceback(script: Run):
    running = script(program("").replace("next(iterator)", 'print("go"); list(iterator)'), "-u")
    running.wait_for("go")
    until(running.look, "a worker is started")

    running.send_to_group(signal.SIGINT)
    done = running.finish()

    assert done.code == -signal.SIGINT
    assert_one_traceback(done.err, "KeyboardInterrupt")
    assert_workers_gone(running)


def test_ctrl_c_in_the_users_own_code_yields_one_traceback(script: Run):
    running = start(script, "threading.Event().wait()")

    running.send_to_group(signal.SIGINT)
    done = running.finish()

    assert done.code == -signal.SIGINT
    assert_one_traceback(done.err, "KeyboardInterrupt")
    assert_workers_gone(running)


def test_an_impatient_user_who_presses_ctrl_c_again_and_again_leaves_no_worker(script: Run):
    running = start(script, READ, "in Python")
    for _ in range(5):
        running.send_to_group(signal.SIGINT)

    assert running.wait() != 0
    assert_workers_gone(running)


def test_a_program_that_catches_ctrl_c_can_go_on(script: Run):
    running = script(
        """
        import signal
        from gristmill import DataLoader, IndexSampler, Batch

        loader = DataLoader(
            data_source=range(20_000),
            sampler=IndexSampler(20_000, num_epochs=1),
            operations=[lambda n: n + 1],
            worker_count=2,
        )
        iterator, seen = iter(loader), []
        while True:
            try:
                for element in iterator:
                    seen.append(element)
                    if len(seen) in (1, 5000, 9000):
                        print("now", flush=True)
                        signal.pause()
                break
            except KeyboardInterrupt:
                pass
        print(seen == list(range(1, 20_001)))
        """
    )
    for _ in range(3):
        running.wait_for("now")
        running.send_to_group(signal.SIGINT)

    done = running.finish()
    assert (done.out, done.err, done.code) == ("True\n", "", 0)
    assert_workers_gone(running)


ENDS = {
    "the last line": ("pass", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "sys.exit in the loop": ("for batch in iterator: sys.exit(5)", 5),
    "exit of the loop's function": ("def f():\n        for b in loader: return\n    f()", 0),
    "close": ("iterator.close()", 0),
    "a cycle that is never collected": ("c = [iterator]; c.append(c); del iterator", 0),
}


@pytest.mark.parametrize(
    ("end", "trouble"),
    [*((end, "") for end in ENDS), ("the last line", "in Python"), ("close", "in Python")],
)
def test_a_program_that_comes_to_its_end_is_silent(script: Run, end: str, trouble: str):
    then, code = ENDS[end]
    running = start(script, f"{WAIT}\n    {then}", trouble)

    running.tell("end")
    done = running.finish()

    assert (done.out, done.err, done.code) == ("", "", code)
    assert_workers_gone(running)


@pytest.mark.parametrize(
    "then", ["raise LookupError('oh')", "for batch in iterator: raise LookupError('oh')"]
)
def test_an_exception_that_nobody_catches_yields_one_traceback(script: Run, then: str):
    running = start(script, f"{WAIT}\n    {then}")

    running.tell("end")
    done = running.finish()

    assert done.code == 1
    assert_one_traceback(done.err, "LookupError: oh")
    assert_workers_gone(running)


def test_an_exception_in_a_worker_that_nobody_catches_yields_one_traceback(script: Run):
    running = script(
        """
        from gristmill import DataLoader, IndexSampler, Batch

        def step(n):
            return 1 // (50 - n)

        loader = DataLoader(
            data_source=range(100),
            sampler=IndexSampler(100, num_epochs=1),
            operations=[step, Batch(4)],
            worker_count=2,
        )
        for batch in loader:
            pass
        """
    )
    done = running.finish()

    assert done.code == 1
    assert done.err.count("Traceback (most recent call last)") == 1
    assert done.err.count("ZeroDivisionError: integer division or modulo by zero") == 1
    assert re.search(r'script.py", line 5, in step\n +return 1 // \(50 - n\)', done.err)
    assert "record 50 of the source" in done.err


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        *((signal.SIGKILL, trouble) for trouble in TROUBLES),
        (signal.SIGTERM, ""),
        (signal.SIGTERM, "in Python"),
        (signal.SIGHUP, ""),
        (signal.SIGABRT, "in Python"),
    ],
)
def test_workers_die_with_a_parent_that_is_killed(
    script: Run, number: signal.Signals, trouble: str
):
    running = start(script, WAIT, trouble)

    running.send(number)
    code = running.wait()

    assert_workers_gone(running)
    assert (code, running.err) == (-number, "")


def test_workers_that_wait_to_send_die_with_their_parent(script: Run):
    running = start(script, WAIT, "sending")
    running.send(signal.SIGSTOP)  # it listens no more
    until(lambda: all(map(waits_to_send, running.workers)), "the workers' lines are full")

    running.kill()

    assert_workers_gone(running)
    assert running.err == ""


def test_idle_workers_die_with_their_parent(script: Run):
    running = start(script, WAIT)
    until(lambda: all(map(is_idle, running.workers)), "the workers have nothing to do")

    running.kill()

    assert_workers_gone(running)
    assert running.err == ""


def test_stopped_workers_die_with_their_parent(script: Run):
    running = start(script, WAIT)
    kill_quietly(running.workers, signal.SIGSTOP)
    until(lambda: all(map(is_stopped, running.workers)), "the workers are stopped")

    running.kill()

    assert_workers_gone(running)


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.15, 0.3])
def test_workers_that_start_die_with_their_parent(script: Run, moment: float):
    running = script(program("").replace("next(iterator)", 'print("go"); list(iterator)'), "-u")
    running.wait_for("go")
    until(running.look, "a worker is started")
    _wait_at_most(moment, lambda: False)
    running.look()

    running.kill()

    assert_workers_gone(running)
    assert running.err == ""


def _wait_at_most(seconds: float, holds: Callable[[], bool]) -> None:
    with pytest.raises(AssertionError):
        until(holds, "this moment", seconds=seconds)


def test_a_fork_of_the_parent_that_exits_does_not_disturb_the_workers(script: Run):
    running = script(
        program(
            """
    for end in (lambda: sys.exit(0), lambda: os._exit(0), lambda: os.kill(os.getpid(), 9)):
        child = os.fork()
        if child == 0:
            end()
        os.waitpid(child, 0)
        first = next(iterator)[0, 0]
        assert next(iterator)[0, 0] == first + 4
    print(iterator.stats().num_restarts, flush=True)
    """
        )
    )
    running.wait_for("ready")
    running.wait_for("0")
    done = running.finish()

    assert (done.err, done.code) == ("", 0)
    assert_workers_gone(running)


def test_a_fork_that_drops_the_iterator_does_not_disturb_the_workers(script: Run):
    running = script(
        program(
            """
    child = os.fork()
    if child == 0:
        iterator.close()
        del iterator
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
    first = next(iterator)[0, 0]
    assert all(batch[0, 0] == first + 4 * (n + 1) for n, batch in zip(range(1000), iterator))
    print(iterator.stats().num_restarts, flush=True)
    """
        )
    )
    running.wait_for("ready")
    running.wait_for("0")
    running.wait_for("0")
    done = running.finish()

    assert (done.err, done.code) == ("", 0)


def test_workers_die_with_their_parent_though_a_fork_of_it_lives_on(script: Run):
    running = script(
        program(
            """
    child = os.fork()
    if child == 0:
        threading.Event().wait()
    print("forked", flush=True)
    sys.stdin.readline()
    """
        )
    )
    running.wait_for("ready")
    running.wait_for("forked")
    until(lambda: len(running.workers) == 2, "two workers run")
    until(lambda: all(map(is_idle, running.workers)), "they are idle")
    ours = running.workers | set(fork_servers_of(running.pid))
    (fork,) = running.look() - ours

    running.kill()

    until(gone(ours), "the workers and the fork server are gone")
    assert is_alive(fork)


NESTED = """
    import os, pathlib, sys, threading
    from gristmill import Batch, DataLoader, IndexSampler

    def inner(n):
        if n == 3 and {is_stuck}:
            pathlib.Path(f"busy-{{os.getpid()}}").touch()
            threading.Event().wait()
        return n * 10

    def outer(n):
        loader = DataLoader(
            data_source=range(n, n + 4),
            sampler=IndexSampler(4, num_epochs=1),
            operations=[inner],
            worker_count=1,
        )
        return sum(loader)

    loader = DataLoader(
        data_source=range(3),
        sampler=IndexSampler(3, num_epochs=1),
        operations=[outer],
        worker_count=1,
    )
    print("start", flush=True)
    print(list(loader))
"""


def test_a_loader_inside_the_worker_of_another_works(script: Run):
    done = script(NESTED.format(is_stuck=False)).finish()

    expected = [sum(10 * k for k in range(n, n + 4)) for n in range(3)]
    assert (done.out, done.err, done.code) == (f"start\n{expected}\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_of_workers_die_with_the_first_parent(
    script: Run, tmp_path: Path, number: signal.Signals
):
    running = script(NESTED.format(is_stuck=True))
    running.wait_for("start")
    until(lambda: list(tmp_path.glob("busy-*")), "the worker's worker is at it")
    assert len(running.look()) == 4  # each worker has a fork server

    running.send(number)

    until(gone([running.pid]), "the parent is gone")
    assert_workers_gone(running)


BACKGROUND = {
    "ahead": "numbers.map(step).to_iter_dataset()",
    "threads": "numbers.map(step).to_iter_dataset(ReadOptions(num_threads=2))",
    "prefetch": "ThreadPrefetchIterDataset(iterable.map(step), prefetch_buffer_size=9)",
}


def end_with_a_thread_at_work(script: Run, dataset: str, slow: str) -> Done:
    return script(f"""
        import threading, time
        from gristmill import MapDataset, ReadOptions
        from gristmill.experimental import ThreadPrefetchIterDataset

        begun = threading.Event()

        def step(number):
            if number == 3:
                begun.set()
                {slow}
                print("done", flush=True)
            return number

        numbers = MapDataset.range(1000)
        iterable = numbers.to_iter_dataset()
        iterator = iter({BACKGROUND[dataset]})
        iterator.start_prefetch()
        begun.wait()
    """).finish()


@pytest.mark.parametrize("dataset", BACKGROUND)
def test_a_thread_ends_what_it_is_at_before_the_program_does(script: Run, dataset: str):
    # Were it killed in native code, PyTorch's for instance, the program would end by an abort.
    assert end_with_a_thread_at_work(script, dataset, "time.sleep(0.5)") == ("done\n", "", 0)


def test_a_thread_that_does_not_end_is_not_waited_for_for_ever(script: Run):
    assert end_with_a_thread_at_work(script, "ahead", "threading.Event().wait()") == ("", "", 0)
