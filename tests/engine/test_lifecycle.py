"""When the background thread of a stream begins and ends."""

import _thread
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, ReadOptions, load
from gristmill.errors import ClosedError
from tests.faults.processes import until
from tests.policies import fixed_blocks, with_policy
from tests.time_limits import PATIENCE_S

MakeLoader = Callable[..., DataLoader]
OwnThreads = Callable[[], list[threading.Thread]]


class CountsReads:
    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.reads = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        return index


@pytest.mark.parametrize("ahead", [False, True])
def test_building_and_opening_read_nothing_and_start_nothing(
    make_loader: MakeLoader, own_threads: OwnThreads, ahead: bool
):
    source = CountsReads()
    iterator = iter(make_loader(source, lambda x: x + 1, ahead=ahead))
    iterator.set_state(iterator.get_state())

    assert source.reads == 0
    assert own_threads() == []


def test_the_first_next_starts_the_thread(make_loader: MakeLoader, own_threads: OwnThreads):
    iterator = iter(make_loader(range(100_000)))

    assert next(iterator) == 0
    assert len(own_threads()) == 1


def test_start_prefetch_starts_the_thread_and_reads(own_threads: OwnThreads):
    was_read = threading.Event()
    iterator = _iterator_that_tells(was_read)

    iterator.start_prefetch()

    assert was_read.wait(PATIENCE_S)
    assert len(own_threads()) == 1
    iterator.start_prefetch()
    assert len(own_threads()) == 1


def _iterator_that_tells(was_read: threading.Event) -> Any:

    def tell(element: int) -> int:
        was_read.set()
        return element

    return iter(
        DataLoader(
            data_source=range(100_000),
            sampler=IndexSampler(100_000, num_epochs=1),
            operations=[tell],
        )
    )


@pytest.mark.parametrize("options", [{"num_threads": 0}, {"prefetch_buffer_size": 0}])
def test_nothing_runs_in_the_background_if_so_asked(own_threads: OwnThreads, options: Any):

    loader = DataLoader(
        data_source=range(100_000),
        sampler=IndexSampler(100_000, num_epochs=1),
        read_options=ReadOptions(**options),
    )
    iterator = iter(loader)
    iterator.start_prefetch()

    assert next(iterator) == 0
    assert own_threads() == []


def test_close_ends_the_thread(make_loader: MakeLoader, own_threads: OwnThreads):
    iterator = iter(make_loader(range(100_000)))
    next(iterator)
    (thread,) = own_threads()

    iterator.close()

    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    iterator.close()


@pytest.mark.parametrize("num_read", [0, 1, 5, 40])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_closed_iterator_yields_its_state_and_no_elements(
    make_loader: MakeLoader, own_threads: OwnThreads, num_read: int, ahead: bool
):
    loader = make_loader(range(40), ahead=ahead)
    iterator = iter(loader)
    seen = list(islice(iterator, num_read))
    iterator.close()

    with pytest.raises(ClosedError, match="closed"):
        next(iterator)
    resumed = iter(loader)
    resumed.set_state(iterator.get_state())
    assert seen + list(resumed) == list(range(40))
    iterator.start_prefetch()
    assert own_threads() == []


def test_the_end_of_the_stream_ends_the_thread(make_loader: MakeLoader, own_threads: OwnThreads):
    iterator = iter(make_loader(range(100)))
    next(iterator)
    (thread,) = own_threads()

    assert list(iterator) == list(range(1, 100))

    thread.join(PATIENCE_S)
    assert own_threads() == []
    assert list(iterator) == []
    assert next(iterator, "the end") == "the end"


def test_an_iterator_nobody_holds_any_more_ends_its_thread(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    iterator = iter(make_loader(range(100_000)))
    next(iterator)
    (thread,) = own_threads()

    del iterator

    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_an_iterator_in_a_cycle_ends_its_thread_when_collected(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    iterator = iter(make_loader(range(100_000)))
    next(iterator)
    (thread,) = own_threads()
    cycle: list[Any] = [iterator]
    cycle.append(cycle)

    del iterator, cycle
    gc.collect()

    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_leaving_many_loops_early_leaves_no_thread(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    loader = make_loader(range(100_000))

    for _ in range(200):
        for element in loader:
            assert element == 0
            break

    for thread in own_threads():
        thread.join(PATIENCE_S)
    assert own_threads() == []


def test_an_error_ends_the_thread(make_loader: MakeLoader, own_threads: OwnThreads):
    iterator = iter(make_loader(range(5), lambda x: 1 / (3 - x)))
    assert len(list(islice(iterator, 3))) == 3

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            next(iterator)

    for thread in own_threads():
        thread.join(PATIENCE_S)
    assert own_threads() == []


@pytest.mark.parametrize("ahead", [False, True])
def test_two_iterators_of_one_loader_do_not_disturb_each_other(
    make_loader: MakeLoader, own_threads: OwnThreads, ahead: bool
):
    loader = make_loader(range(300), ahead=ahead)
    first, second = iter(loader), iter(loader)

    pairs = list(zip(first, islice(second, 10, None), strict=False))

    assert pairs == list(zip(range(300), range(10, 300), strict=False))
    first.close()
    second.set_state(iter(loader).get_state())
    assert list(second) == list(range(300))


PROGRAM = """
import threading
from gristmill import DataLoader, IndexSampler

def step(element):
    if element == 3 and {is_stuck}:
        threading.Event().wait()
    return element

loader = DataLoader(
    data_source=range(10**6), sampler=IndexSampler(10**6, shuffle=False), operations=[step]
)
iterators = [iter(loader) for _ in range(3)]
for iterator in iterators:
    next(iterator)
    iterator.start_prefetch()
print(threading.active_count() >= 4)  # on a busy machine, one may have tried more
{end}
"""


@pytest.mark.parametrize("is_stuck", [False, True])
@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "del iterators"])
def test_a_program_ends_while_threads_run_ahead(is_stuck: bool, end: str):
    program = PROGRAM.format(is_stuck=is_stuck, end=end)

    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.fixture
def new_threads() -> Callable[[], list[str]]:
    """Return a function that lists our threads of this test, not those of workers idle before."""
    gc.collect()
    before = set(threading.enumerate())

    def find() -> list[str]:
        alive = set(threading.enumerate()) - before
        return [thread.name for thread in alive if "gristmill" in thread.name]

    return find


def _fail_at_50(number: int) -> int:
    if number == 50:
        raise ValueError(number)
    return number


@pytest.mark.parametrize("num_threads", [1, 16])
def test_after_an_error_no_thread_is_left_though_its_traceback_is_held(
    num_threads: int, new_threads: Callable[[], list[str]]
):
    loader = load(
        range(100),
        num_epochs=1,
        transformations=[_fail_at_50],
        read_options=ReadOptions(num_threads=num_threads),
    )
    iterator = iter(loader)
    iterator.start_prefetch()

    with pytest.raises(ValueError, match="50") as held:
        list(iterator)

    until(lambda: not new_threads(), "the threads are gone")
    assert held.value.__traceback__ is not None
    with pytest.raises(ValueError, match="50"):  # it is before the failed element, as always
        next(iterator)


def test_after_the_last_element_no_thread_is_left_and_the_iterator_can_be_restored(
    new_threads: Callable[[], list[str]],
):
    iterator = iter(load(range(100), num_epochs=1))
    iterator.start_prefetch()
    first = next(iterator)
    state = iterator.get_state()

    rest = list(iterator)
    until(lambda: not new_threads(), "the threads are gone")
    assert list(iterator) == []
    iterator.set_state(state)

    assert [first, *iterator] == [first, *rest] == list(range(100))
    assert iterator.stats().steps[0].name == iter(load(range(100))).stats().steps[0].name
    assert len(iterator.stats().steps) == 1


@pytest.mark.parametrize("is_soon", [True, False])
def test_a_thread_that_outlives_ctrl_c_ends_the_stages_when_it_leaves(
    is_soon: bool, new_threads: Callable[[], list[str]]
):
    """A notebook holds the traceback; the thread was in a function of the user at that moment."""
    is_released, calls = threading.Event(), list[int]()

    def interrupt_once(number: int) -> int:
        calls.append(number)
        if number == 5 and calls.count(5) == 1:
            _thread.interrupt_main()
            assert is_released.wait(PATIENCE_S)
        return number

    policy = fixed_blocks(1)
    loader = with_policy(load(range(20), num_epochs=1, transformations=[interrupt_once]), policy)
    iterator: Any = iter(loader)
    iterator.start_prefetch()
    seen: list[int] = []

    def consume() -> None:
        for number in iterator:
            seen.append(number)  # noqa: PERF402 - those before the interrupt count

    with pytest.raises(KeyboardInterrupt) as held:
        consume()

    puller = iterator._run.stream._puller
    assert not puller.is_parked
    if not is_soon:
        is_released.set()
        until(lambda: puller.is_parked and not new_threads(), "the stages are closed")
    else:  # it is used again before the thread leaves
        threading.Timer(0.01, is_released.set).start()
    assert [*seen, *iterator] == list(range(20))
    assert held.value.__traceback__ is not None
