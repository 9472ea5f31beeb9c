"""A record that kills its worker each time, or never ends, is named after three tries."""

import ctypes
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, DataLoaderIterator, IndexSampler, WorkerOptions
from gristmill.errors import WorkerError
from tests.faults.gates import Gate, Notes
from tests.faults.processes import is_idle, kill_quietly, until, workers_of
from tests.policies import fixed_blocks, with_policy
from tests.time_limits import PATIENCE_S

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")

DEATHS: dict[str, Callable[[], object]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": lambda: os.kill(os.getpid(), signal.SIGABRT),
    "exit code 7": lambda: os._exit(7),
}


def drain(iterator: DataLoaderIterator) -> tuple[list[Any], WorkerError]:
    """Return the elements up to an error, and that."""
    seen: list[Any] = []

    def run() -> None:
        seen.extend(iterator)

    with pytest.raises(WorkerError) as caught:
        run()
    iterator.close()
    return seen, caught.value


@pytest.mark.parametrize("reason", DEATHS)
def test_a_record_that_kills_its_worker_is_named_after_three_tries(
    make_loader: MakeLoader, tmp_path: Path, reason: str
):
    die, notes = DEATHS[reason], Notes(tmp_path / "tries")

    def deadly(element: int) -> int:
        if element == 13:
            notes.write(element)
            die()
        return element

    seen, error = drain(iter(make_loader(range(40), deadly)))

    assert seen == list(range(13))
    assert "Record 13 of the source (position 13 of the stream) killed its worker" in str(error)
    assert f"3 times, the last time by {'signal ' if 'SIG' in reason else ''}{reason}" in str(error)
    assert len(notes.read()) == 3


def test_a_deadly_record_of_a_shuffled_batch_is_named_by_its_place_in_the_source(
    make_loader: MakeLoader,
):
    sampler = IndexSampler(60, shuffle=True, seed=5, num_epochs=1)
    order = list(DataLoader(data_source=range(60), sampler=sampler))
    place = order.index(42)

    def deadly(element: int) -> int:
        if element == 42:
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    seen, error = drain(iter(make_loader(range(60), deadly, Batch(5), sampler=sampler)))

    assert np.concatenate(seen).tolist() == order[: place // 5 * 5]
    assert f"Record 42 of the source (position {place} of the stream) killed" in str(error)


def test_elements_right_before_a_deadly_record_are_delivered(make_loader: MakeLoader):
    """Also those that its worker computes in one go with it: small ones, some hundred at a time."""

    def deadly(element: int) -> int:
        if element == 30_011:
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    seen, error = drain(iter(make_loader(range(60_000), deadly)))

    assert "Record 30011 of the source" in str(error)
    assert seen == list(range(30_011))


def test_elements_before_a_record_that_kills_two_workers_at_once_are_delivered(
    make_loader: MakeLoader, tmp_path: Path
):
    """A free worker takes over what waits behind a slow one, so two may die of one range."""
    policy = fixed_blocks(2)  # (0 1) (2 3) (4 5) (6 7)
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    notes = Notes(tmp_path / "tries")

    def deadly(element: int) -> int:
        if element == 0:  # the first block of each worker
            first.wait(element)
        if element == 2:
            second.wait(element)
        if element == 7:
            notes.write(element)
            os._exit(1)
        return element

    iterator = iter(with_policy(make_loader(range(8), deadly), policy))
    seen: list[int] = []

    def consume() -> None:
        with pytest.raises(WorkerError, match="Record 7 "):
            seen.extend(iterator)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    try:
        until(lambda: first.arrived and second.arrived, "both workers are held up")
        first.open()
        until(notes.read, "one that is free has died")
        until(lambda: iterator.stats().num_restarts, "which is noticed")
    finally:
        first.open()
        second.open()
        consumer.join(PATIENCE_S)
        iterator.close()

    assert seen == list(range(7))


def test_the_state_after_a_deadly_record_lets_one_go_on_behind_it(
    make_loader: MakeLoader, tmp_path: Path
):
    fixed = tmp_path / "fixed"

    def deadly(element: int) -> int:
        if element == 5 and not fixed.exists():
            os._exit(1)
        return element

    loader = make_loader(range(20), deadly)
    iterator = iter(loader)
    seen, _ = drain(iterator)
    fixed.touch()
    resumed = iter(loader)
    resumed.set_state(iterator.get_state())

    assert seen + list(resumed) == list(range(20))


def test_the_same_iterator_goes_on_once_the_record_is_mended(
    make_loader: MakeLoader, tmp_path: Path
):
    fixed = tmp_path / "fixed"

    def deadly(element: int) -> int:
        if element == 5 and not fixed.exists():
            os._exit(1)
        return element

    iterator = iter(make_loader(range(20), deadly))
    seen = list(islice(iterator, 5))
    with pytest.raises(WorkerError, match="Record 5 "):
        next(iterator)
    fixed.touch()

    assert seen + list(iterator) == list(range(20))


def test_a_step_above_the_batch_that_kills_its_worker_names_the_records(make_loader: MakeLoader):

    def deadly(batch: np.ndarray) -> np.ndarray:
        if batch[0] == 20:
            os._exit(1)
        return batch

    seen, error = drain(iter(make_loader(range(60), Batch(5), deadly)))

    assert np.concatenate(seen).tolist() == list(range(20))
    first, last = map(int, re.findall(r"position (\d+)", str(error)))
    assert first <= 20 <= last
    assert "none of them by itself" in str(error)


def test_a_record_that_kills_twice_is_forgiven(make_loader: MakeLoader, tmp_path: Path):
    notes = Notes(tmp_path / "tries")

    def deadly(element: int) -> int:
        if element == 13 and len(notes.read()) < 2:
            notes.write(element)
            os._exit(1)
        return element

    iterator = iter(make_loader(range(40), deadly))

    assert list(iterator) == list(range(40))
    assert iterator.stats().num_restarts == 2


def test_a_record_that_hangs_is_named_after_three_times_the_limit(
    make_loader: MakeLoader, tmp_path: Path
):
    notes = Notes(tmp_path / "tries")

    def hang(element: int) -> int:
        if element == 13:
            notes.write(element)
            threading.Event().wait()
        return element

    options = WorkerOptions(block_timeout_s=0.3)
    seen, error = drain(iter(make_loader(range(40), hang, worker_options=options)))

    assert seen == list(range(13))
    assert "Record 13 of the source" in str(error)
    assert "exceeding `block_timeout_s`" in str(error)
    assert len(notes.read()) == 3


def test_a_record_that_hangs_once_is_computed_again(make_loader: MakeLoader, tmp_path: Path):
    notes = Notes(tmp_path / "tries")

    def hang(element: int) -> int:
        if element == 13 and not notes.read():
            notes.write(element)
            threading.Event().wait()
        return element

    options = WorkerOptions(block_timeout_s=0.5)

    assert list(make_loader(range(40), hang, worker_options=options)) == list(range(40))


@pytest.mark.parametrize("num_stopped", [1, 2])
def test_a_worker_stopped_while_busy_is_replaced_after_the_limit(
    make_loader: MakeLoader, tmp_path: Path, num_stopped: int
):
    gate = Gate(tmp_path / "gate")

    def hold(element: int) -> int:
        if element in (0, 1):  # the first block of each worker
            gate.wait(element)
        return element

    options = WorkerOptions(block_timeout_s=1)
    iterator = iter(make_loader(range(40), hold, worker_options=options))
    iterator.start_prefetch()
    until(lambda: len(gate.arrived) == 2, "both workers are busy")

    kill_quietly(list(gate.arrived)[:num_stopped], signal.SIGSTOP)
    gate.open()

    assert list(iterator) == list(range(40))
    assert num_stopped - 1 <= iterator.stats().num_restarts <= num_stopped


def test_a_worker_stopped_while_idle_is_replaced_after_the_limit(make_loader: MakeLoader):
    options = WorkerOptions(block_timeout_s=0.5)
    iterator = iter(make_loader(range(10**5), lambda x: x, Batch(10), worker_options=options))
    seen = [next(iterator)]
    workers = workers_of(os.getpid())
    until(lambda: all(map(is_idle, workers)), "the workers have nothing to do")

    kill_quietly(workers, signal.SIGSTOP)
    seen += iterator

    assert np.array_equal(np.concatenate(seen), np.arange(10**5))
    assert iterator.stats().num_restarts == 2


def test_a_consumer_that_takes_long_is_not_held_against_the_workers(make_loader: MakeLoader):
    options = WorkerOptions(block_timeout_s=0.3)
    iterator = iter(make_loader(range(40), lambda x: np.full(1000, x), worker_options=options))
    seen: list[int] = []
    for element in iterator:
        seen.append(int(element[0]))
        if element[0] in (0, 10, 20):
            _let_time_pass(0.7)

    assert seen == list(range(40))
    assert iterator.stats().num_restarts == 0


def test_log_lines_that_wait_for_a_slow_consumer_are_not_held_against_the_workers(
    make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger("chatty"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("chatty"), "handlers", [logging.NullHandler()])

    def chatty(element: int) -> int:
        for _ in range(50):
            logging.getLogger("chatty").warning("x" * 10_000)
        return element

    options = WorkerOptions(block_timeout_s=0.3)
    iterator = iter(make_loader(range(60), chatty, worker_options=options))
    seen: list[int] = []
    for element in iterator:
        seen.append(element)
        if element in (0, 20):
            _let_time_pass(1.0)

    assert seen == list(range(60))
    assert iterator.stats().num_restarts == 0


def _let_time_pass(seconds: float) -> None:
    """Be a slow consumer: the time is the thing tested."""
    time.sleep(seconds)
