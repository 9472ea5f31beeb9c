"""Ctrl-C, at any moment: `KeyboardInterrupt`, and the same iterator then continues where it was."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource, DataLoader
from gristmill._base.threads.background import BackgroundPrefetcher
from gristmill._engine.blocks.block import Block
from gristmill.errors import ClosedError

MakeLoader = Callable[..., DataLoader]
InTime = Callable[[Callable[[], Any]], Any]
A_WHILE_S = 0.2  # how long to look whether something happens that must not

PROGRAM = """
import sys
import threading
from gristmill import DataLoader, FlatMap, Filter, Batch, IndexSampler, ReadOptions

go_on = threading.Event()

def wait_until_the_consumer_waits():
    main = threading.main_thread()
    num_waits = 0
    while threading.current_thread() is not main and num_waits < 20:
        frame, names = sys._current_frames()[main.ident], set()
        while frame is not None:
            names.add(frame.f_code.co_filename.rpartition("/")[2])
            frame = frame.f_back
        num_waits = num_waits + 1 if "background.py" in names else 0
        go_on.wait(0.001)

def slow(element):
    if element == 13 and not go_on.is_set():
        wait_until_the_consumer_waits()
        print("slow", flush=True)
        go_on.wait()
    return element

class Twice(FlatMap):
    max_fan_out = 2
    def flat_map(self, element):
        return [element, element]

loader = DataLoader(
    data_source=range(30),
    sampler=IndexSampler(30, num_epochs=1),
    operations=[slow, {operations}],
    read_options=ReadOptions(num_threads={num_threads}),
)
iterator, seen = iter(loader), []
iterator.start_prefetch()
while True:
    try:
        for element in iterator:
            seen.append(element if isinstance(element, int) else element.tolist())
        break
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        go_on.set()
print(seen)
"""


@pytest.mark.parametrize("num_threads", [0, 16])
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ("", list(range(30))),
        ("Twice()", [record for record in range(30) for _ in range(2)]),
        ("Twice(), Batch(4)", [[n, n, n + 1, n + 1] for n in range(0, 30, 2)]),
        ("Batch(7)", [list(range(30))[n : n + 7] for n in range(0, 30, 7)]),
    ],
)
def test_after_ctrl_c_in_a_slow_step_nothing_is_lost_or_repeated(
    operations: str, expected: list[Any], num_threads: int
):
    program = PROGRAM.format(operations=operations, num_threads=num_threads)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "slow\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)

    assert (out, err) == (f"interrupted\n{expected}\n", "")
    assert child.returncode == 0


TWICE = """
import os
import queue
import signal
import sys
import threading
from gristmill import DataLoader, IndexSampler

go_on, lock, interrupted = threading.Event(), threading.Lock(), queue.SimpleQueue()
num_inside = most_inside = 0

def slow(element):
    global num_inside, most_inside
    with lock:
        num_inside += 1
        most_inside = max(most_inside, num_inside)
    if element == 13:
        go_on.wait()
    with lock:
        num_inside -= 1
    return element

def interrupt():
    num_seen = 0
    while num_seen < 20:
        frame, names = sys._current_frames()[threading.main_thread().ident], set()
        while frame is not None:
            names.add(frame.f_code.co_filename.rpartition("/")[2])
            frame = frame.f_back
        num_seen = num_seen + 1 if "stream.py" in names else 0
        go_on.wait(0.001)
    os.kill(os.getpid(), signal.SIGINT)

def interrupt_twice():
    interrupt()  # while the consumer waits for an element
    interrupted.get()
    interrupt()  # and again while it waits for the thread to end, or for the element
    go_on.wait(0.2)
    go_on.set()

loader = DataLoader(
    data_source=range(30), sampler=IndexSampler(30, num_epochs=1), operations=[slow]
)
threading.Thread(target=interrupt_twice, daemon=True).start()
iterator, seen = iter(loader), []
iterator.start_prefetch()
while True:
    try:
        for element in iterator:
            seen.append(element)
        break
    except KeyboardInterrupt:
        print("interrupted")
        interrupted.put(None)
print(seen == list(range(30)), most_inside)
"""


def test_after_ctrl_c_twice_no_second_thread_runs_the_users_code():
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("interrupted\ninterrupted\nTrue 1\n", "")


@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupt_while_a_block_becomes_rows_loses_none_of_them(
    make_loader: MakeLoader, ahead: bool, monkeypatch: pytest.MonkeyPatch
):
    rows, num_calls = Block.rows, 0

    def interrupted_rows(self: Block) -> list[Any]:
        nonlocal num_calls
        num_calls += 1
        if num_calls in (3, 5):
            raise KeyboardInterrupt
        return rows(self)

    monkeypatch.setattr(Block, "rows", interrupted_rows)
    iterator = iter(make_loader(ArraySource(np.arange(40)), ahead=ahead))
    seen: list[int] = []

    while len(seen) < 40:
        try:
            seen.extend(map(int, iterator))
            break
        except KeyboardInterrupt:
            assert json.loads(iterator.get_state())["cursor"] == [len(seen)]

    assert seen == list(range(40))


@pytest.fixture
def interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come once, while one waits for the thread to end."""
    wait = BackgroundPrefetcher.wait
    is_first = True

    def interrupted(self: BackgroundPrefetcher[Any], timeout_s: float | None = None) -> bool:
        nonlocal is_first
        if is_first:
            is_first = False
            raise KeyboardInterrupt
        return wait(self, timeout_s)

    monkeypatch.setattr(BackgroundPrefetcher, "wait", interrupted)


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_set_state_changes_nothing(make_loader: MakeLoader, in_time: InTime):
    iterator = iter(make_loader(range(1000)))
    start = iterator.get_state()
    assert [next(iterator) for _ in range(5)] == [0, 1, 2, 3, 4]

    try:
        iterator.set_state(start)
        expected = list(range(1000))  # it has nothing to wait for
    except KeyboardInterrupt:
        expected = list(range(5, 1000))

    # Not to the end, where it waits for its thread, too.
    assert in_time(lambda: [next(iterator) for _ in expected]) == expected


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_close_loses_nothing(make_loader: MakeLoader, in_time: InTime):
    iterator = iter(make_loader(range(1000)))
    assert [next(iterator) for _ in range(5)] == [0, 1, 2, 3, 4]
    state = iterator.get_state()

    with suppress(KeyboardInterrupt):
        iterator.close()

    assert iterator.get_state() == state
    assert in_time(lambda: _rest_or_closed(iterator)) in ("closed", list(range(5, 1000)))


def _rest_or_closed(iterator: Any) -> Any:
    try:
        return list(iterator)
    except ClosedError:
        return "closed"


def test_an_interrupt_while_the_thread_starts_leaves_no_second_one_behind(
    make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch
):
    start = threading.Thread.start
    interrupts = ["one"]
    inside: list[int] = []
    most_inside = 0
    has_company = threading.Event()

    def interrupted_start(self: threading.Thread) -> None:
        start(self)
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt

    def step(element: int) -> int:
        nonlocal most_inside
        inside.append(element)
        most_inside = max(most_inside, len(inside))
        if len(inside) > 1:
            has_company.set()
        elif element == 0:
            has_company.wait(A_WHILE_S)
        inside.remove(element)
        return element

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    iterator = iter(make_loader(range(100), step))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)

    assert list(iterator) == list(range(100))
    assert most_inside == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupt_raised_by_a_step_is_handed_on_and_then_forgotten(
    make_loader: MakeLoader, ahead: bool
):
    interrupts = [7, 23]

    def step(element: int) -> int:
        if element in interrupts:
            interrupts.remove(element)
            raise KeyboardInterrupt
        return element

    iterator, seen = iter(make_loader(range(40), step, ahead=ahead)), []
    num_interrupts = 0
    while len(seen) < 40:
        try:
            seen.append(next(iterator))
        except KeyboardInterrupt:
            num_interrupts += 1

    assert seen == list(range(40))
    assert num_interrupts == 2
