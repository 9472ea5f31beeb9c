"""An iterator that is never pulled again leaves no thread and no worker, whatever holds it."""

import code
import math
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest

from gristmill import Batch, DataLoader, IndexSampler, ReadOptions, WorkerOptions
from gristmill._api.feeding.iterator import FeedIterator
from gristmill._api.feeding.placement import Placement
from gristmill._api.feeding.remainder import Remainder
from gristmill._base.threads.background import Background
from gristmill._engine.stream import Stream
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from tests.faults.gates import Gate
from tests.faults.processes import until, workers_of
from tests.policies import TRIES_AT_ONCE, fixed_blocks, with_policy

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


def new_threads() -> set[str]:
    running = set(threading.enumerate()) - _BEFORE["threads"]
    return {thread.role for thread in running if isinstance(thread, Background)}


def no_thread_is_left() -> None:
    until(lambda: not new_threads(), "the threads are gone")


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


def test_ctrl_c_while_a_parked_iterator_opens_again_repeats_nothing(
    make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch
):
    loader = make_loader(range(1_000), double, worker_count=0, worker_options=SOON)
    iterator = iter(loader)
    iterator.start_prefetch()
    assert [next(iterator), next(iterator)] == [0, 2]
    no_thread_is_left()
    count = 2 + len(iterator._run.stream._handout.waiting)
    assert [next(iterator) for _ in range(2, count)] == list(range(4, 2 * count, 2))

    finalize = weakref.finalize

    def interrupt(owner: object, *arguments: Any) -> object:
        if isinstance(owner, Stream):  # its stages are open, and at the start
            raise KeyboardInterrupt
        return finalize(owner, *arguments)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(weakref, "finalize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)

    assert list(iterator) == list(range(2 * count, 2_000, 2))


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


def waiting_loader(transform: Callable[[int], int]) -> DataLoader:
    """Return a loader that continues on threads within its first batch."""
    return DataLoader(
        data_source=range(10_000),
        sampler=IndexSampler(10_000, num_epochs=1),
        operations=[transform, Batch(8)],
        worker_options=SOON,
    )


def wait(number: int) -> int:
    threading.Event().wait(0.002)
    return number


def test_threads_end_though_only_one_batch_was_taken():
    iterator = iter(waiting_loader(wait))
    first = next(iterator).tolist()
    assert iterator.stats().executor == "threads"

    no_thread_is_left()

    assert first + next(iterator).tolist() == list(range(16))
    iterator.close()


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()], ids=["bad", "ctrl-c"])
def test_an_error_in_the_first_batch_leaves_no_threads(error: BaseException):
    errors = [error]

    def fail_once(number: int) -> int:
        if number == 6 and errors:
            raise errors.pop()
        return wait(number)

    iterator = iter(waiting_loader(fail_once))
    with pytest.raises(type(error)):
        next(iterator)
    assert iterator.stats().executor == "threads"

    no_thread_is_left()

    assert next(iterator).tolist() == list(range(8))
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


def fed(loader: DataLoader) -> FeedIterator:
    """Feed the batches of a loader, with a short timeout."""
    jax = pytest.importorskip("jax")
    placement = Placement(jax.devices()[0], unsupported="raise")
    return FeedIterator(iter(loader), placement, Remainder("keep"), 2, idle_timeout_s=0.05)


def test_a_feed_leaves_nothing_after_an_error_in_the_loop_though_its_traceback_is_held(
    make_loader: MakeLoader,
):
    loader = make_loader(range(3_000), double, Batch(5), worker_options=SOON)

    def train() -> None:
        batches = fed(loader)
        for number, _ in enumerate(batches):
            if number == 20:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train()

    no_worker_is_left()
    no_thread_is_left()
    assert caught.value.__traceback__ is not None


def test_a_feed_whose_transform_fails_leaves_nothing_though_its_traceback_is_held(
    make_loader: MakeLoader,
):
    def fail_at(number: int) -> int:
        if number == 500:
            raise ValueError("not an image")
        return number

    loader = make_loader(range(3_000), fail_at, Batch(5), worker_options=SOON)
    batches = fed(loader)
    with pytest.raises(ValueError, match="not an image") as caught:
        list(batches)

    no_worker_is_left()
    no_thread_is_left()
    assert caught.value.__traceback__ is not None


@final
class InterruptedFeed:
    """A feed that Ctrl-C interrupts while it waits for a batch, and the batches before it."""

    def __init__(self, make_loader: MakeLoader, gate: Gate) -> None:
        jax = pytest.importorskip("jax")

        def wait_once(number: int) -> int:
            if number == 500:
                gate.wait()
            return number

        self.loader = with_policy(
            make_loader(range(1_000), wait_once, Batch(5)), fixed_blocks(1, DEFAULT_POLICY)
        )
        placement = Placement(jax.devices()[0], unsupported="raise")
        self.batches = FeedIterator(iter(self.loader), placement, Remainder("keep"), 2)
        self.seen: list[int] = []
        main = threading.get_ident()

        def is_waiting() -> bool:
            frame = sys._current_frames()[main]
            return len(self.seen) == 500 and frame.f_code.co_name == "_get"

        def interrupt() -> None:
            try:
                until(lambda: gate.arrived, "a worker waits")
                until(is_waiting, "the loop waits for the batch of that worker")
            finally:  # if it does not wait, the test fails, but does not hang
                signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            self.train()
        thread.join()
        self.traceback = caught.value.__traceback__

    def train(self) -> None:
        for batch in self.batches:
            self.seen.extend(batch.tolist())

    def close(self) -> None:
        self.batches.close()
        self.loader.close()


def test_ctrl_c_while_a_feed_waits_leaves_nothing_though_its_traceback_is_held(
    make_loader: MakeLoader, tmp_path: Path
):
    gate = Gate(tmp_path / "gate")
    feed = InterruptedFeed(make_loader, gate)
    gate.open()  # the threads end with the batch that they wait for

    until(lambda: new_threads() <= {"gristmill-idle-workers"}, "only idle workers are left")
    assert feed.traceback is not None
    feed.train()
    assert feed.seen == list(range(1_000))
    feed.close()


def test_a_feed_that_ctrl_c_has_interrupted_waits_for_its_thread(
    make_loader: MakeLoader, tmp_path: Path
):
    """Two threads must not use the loader at the same time."""
    gate = Gate(tmp_path / "gate")
    feed = InterruptedFeed(make_loader, gate)
    opening = threading.Timer(0.1, gate.open)
    opening.start()

    feed.train()

    opening.join()
    assert feed.seen == list(range(1_000))
    feed.close()


def test_a_feed_that_a_variable_keeps_continues_exactly_where_it_was(make_loader: MakeLoader):
    loader = make_loader(range(3_000), double, Batch(5), worker_options=SOON)
    batches = fed(loader)
    start = batches.get_state()
    for _ in range(2):
        seen: list[int] = []
        for _ in range(3):
            seen.extend(number for _ in range(20) for number in next(batches).tolist())
            no_worker_is_left()
            no_thread_is_left()
        seen.extend(number for batch in batches for number in batch.tolist())
        assert seen == list(range(0, 6_000, 2))
        batches.set_state(start)
    next(batches)
    no_thread_is_left()
    batches.set_state(start)  # while it is parked
    assert next(batches).tolist() == [0, 2, 4, 6, 8]
    no_thread_is_left()
    batches.close()
