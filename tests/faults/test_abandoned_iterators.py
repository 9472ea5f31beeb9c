"""An iterator that is never pulled again leaves no thread and no worker, whatever holds it."""

import code
import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gristmill import Batch, DataLoader, IndexSampler, ReadOptions, WorkerOptions
from gristmill._base.background import Background
from tests.faults.processes import until, workers_of
from tests.policies import TRIES_AT_ONCE, with_policy

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")

SOON = WorkerOptions(idle_timeout_s=0.05)


def double(number: int) -> int:
    return 2 * number


def no_worker_is_left() -> None:
    until(lambda: not workers_of(os.getpid()), "the workers are gone")


@pytest.fixture(autouse=True)
def threads_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the threads of earlier tests, whose iterators the garbage collector has not found."""
    monkeypatch.setitem(_BEFORE, "threads", set(threading.enumerate()))


_BEFORE: dict[str, set[threading.Thread]] = {"threads": set()}


def no_thread_is_left() -> None:
    def names() -> list[str]:
        running = set(threading.enumerate()) - _BEFORE["threads"]
        return [thread.role for thread in running if isinstance(thread, Background)]

    until(lambda: not names(), "the threads are gone")


def test_an_error_in_the_body_of_the_loop_leaves_nothing_though_its_traceback_is_held(
    make_loader: MakeLoader,
):
    loader = make_loader(range(10_000), double, worker_options=SOON)

    def train() -> None:
        iterator = iter(loader)
        for number in iterator:
            if number == 20:
                raise ValueError("the loss is not finite")

    with pytest.raises(ValueError, match="loss") as caught:
        train()

    no_worker_is_left()
    no_thread_is_left()
    assert caught.value.__traceback__ is not None


def test_an_iterator_that_a_variable_keeps_continues_exactly_where_it_was(make_loader: MakeLoader):
    loader = make_loader(range(3_000), double, Batch(7), worker_options=SOON)
    iterator = iter(loader)
    seen: list[Any] = []
    for _ in range(4):
        seen.extend(next(iterator).tolist() for _ in range(50))
        no_worker_is_left()
        no_thread_is_left()
        state = iterator.get_state()
        other = iter(loader)
        other.set_state(state)
        assert next(other).tolist() == [2 * (7 * len(seen) + k) for k in range(7)]
        other.close()
    seen.extend(batch.tolist() for batch in iterator)

    assert [number for batch in seen for number in batch] == list(range(0, 6_000, 2))


def test_an_iterator_that_was_parked_can_be_restored_and_closed(make_loader: MakeLoader):
    iterator = iter(make_loader(range(1_000), double, worker_options=SOON))
    start = iterator.get_state()
    next(iterator)
    no_worker_is_left()

    iterator.set_state(start)
    assert next(iterator) == 0
    no_worker_is_left()
    iterator.start_prefetch()
    until(lambda: workers_of(os.getpid()), "workers have started again")
    assert next(iterator) == 2
    no_worker_is_left()
    iterator.close()


def test_an_iterator_that_pauses_again_and_again_loses_nothing(make_loader: MakeLoader):
    """The thread decides to end at any moment, also while the consumer comes back."""
    options = WorkerOptions(idle_timeout_s=1e-4)
    iterator = iter(make_loader(range(400), double, worker_options=options))
    pause = threading.Event()
    seen: list[int] = []
    for number in iterator:
        seen.append(number)
        pause.wait(1e-4)  # about as long as the thread waits for a request

    assert seen == list(range(0, 800, 2))


def test_a_timeout_of_zero_does_not_end_the_workers_of_an_iterator(make_loader: MakeLoader):
    options = WorkerOptions(idle_timeout_s=0)
    with iter(make_loader(range(100_000), double, worker_options=options)) as iterator:
        next(iterator)
        workers = workers_of(os.getpid())
        for _ in range(1_000):
            next(iterator)
        assert workers_of(os.getpid()) == workers != []


def test_threads_that_prefetch_end_too():
    loader = DataLoader(
        data_source=range(10_000),
        sampler=IndexSampler(10_000, num_epochs=1),
        operations=[double],
        read_options=ReadOptions(num_threads=4),
        worker_options=SOON,
    )
    iterator = iter(loader)
    iterator.start_prefetch()
    first = [next(iterator) for _ in range(300)]

    no_thread_is_left()

    assert first + [next(iterator) for _ in range(300)] == list(range(0, 1200, 2))
    iterator.close()


CELLS = [
    "from gristmill import DataLoader, IndexSampler, WorkerOptions",
    "loader = DataLoader(\n"
    "    data_source=range(10_000),\n"
    "    sampler=IndexSampler(10_000, num_epochs=1),\n"
    "    operations=[abs],\n"
    "    worker_count=2,\n"
    "    worker_options=WorkerOptions(idle_timeout_s=0.05),\n"
    ")\n",
    "for number in (iterator := iter(loader)):\n    if number == 3: 1 / 0\n",
]


def run_in_ipython() -> type[BaseException] | None:
    interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False  # it has a thread of its own
    shell = interactiveshell.InteractiveShell(config=config)
    for cell in CELLS:
        shell.run_cell(cell)
    return sys.last_type


def run_in_console() -> type[BaseException] | None:
    console = code.InteractiveInterpreter()
    for cell in CELLS:
        console.runsource(cell, symbol="exec")
    return sys.last_type


@pytest.fixture
def _last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the last error, with all that its traceback holds, after the test."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        monkeypatch.setattr(sys, name, None, raising=False)


@pytest.mark.usefixtures("_last_error")
@pytest.mark.parametrize("run", [run_in_ipython, run_in_console])
def test_an_error_in_a_cell_leaves_nothing_though_the_last_traceback_is_held(
    run: Callable[[], type[BaseException] | None],
    capfd: pytest.CaptureFixture[str],
):
    assert run() is ZeroDivisionError

    no_worker_is_left()
    no_thread_is_left()
    assert sys.last_traceback is not None


@pytest.mark.parametrize(
    "changes",
    [{"min_speedup": math.inf}, {"ready_timeout_s": 0.0, "first_trial_s": 0.0}],
    ids=["failed trial", "workers that start"],
)
def test_workers_that_were_only_tried_end_though_the_iterator_runs_inline(changes: dict[str, Any]):
    policy = replace(TRIES_AT_ONCE, keep_tried_s=0.1, max_tried_workers=1, **changes)
    loader = DataLoader(
        data_source=range(100_000),
        sampler=IndexSampler(100_000, num_epochs=1),
        operations=[double],
        worker_count=None,
        worker_options=WorkerOptions(idle_timeout_s=0.5),  # if it is in the middle of a trial
        read_options=ReadOptions(num_threads=1),
    )
    iterator = iter(with_policy(loader, policy))
    count = 0
    while not workers_of(os.getpid()):
        assert next(iterator) == 2 * count
        count += 1

    no_worker_is_left()
    iterator.close()
