"""A worker that dies is replaced, and the stream is what it would have been without workers."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, Filter, FlatMap, IndexSampler, RandomMap, WorkerOptions
from gristmill.errors import WorkerError
from tests.faults.gates import Gate, Notes
from tests.faults.processes import (
    gone,
    is_idle,
    is_worker,
    kill_quietly,
    until,
    workers_of,
)
from tests.properties.trees import plain
from tests.time_limits import PATIENCE_S

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")


def operations() -> list[Any]:
    """Return a pipeline with something of everything, whose records take about a millisecond."""

    class Noise(RandomMap):
        def random_map(self, element: int, rng: np.random.Generator) -> dict[str, Any]:
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                pass
            return {"n": element, "x": rng.random(300, np.float32), "name": f"record {element}"}

    class Some(Filter):
        def filter(self, element: dict[str, Any]) -> bool:
            return element["n"] % 7 != 3

    class Twice(FlatMap):
        max_fan_out = 2

        def flat_map(self, element: dict[str, Any]) -> list[dict[str, Any]]:
            return [element] * (1 + element["n"] % 2)

    return [Noise(), Some(), Twice(), Batch(5)]


def busy_loader(worker_count: int = 2, **arguments: Any) -> DataLoader:
    """Return a loader of some hundred shuffled records with several steps."""
    return DataLoader(
        data_source=range(240),
        sampler=IndexSampler(240, shuffle=True, seed=3, num_epochs=1),
        operations=operations(),
        worker_count=worker_count,
        **arguments,
    )


@cache
def expected() -> Any:
    """Return what it makes without workers."""
    return plain(list(busy_loader(worker_count=0)))


def test_a_worker_killed_while_it_starts_changes_nothing():
    iterator = iter(busy_loader())
    iterator.start_prefetch()
    until(lambda: workers_of(os.getpid()), "a worker is started")

    os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    assert plain(list(iterator)) == expected()
    assert iterator.stats().num_restarts == 1


@pytest.mark.parametrize("num_killed", [1, 2])
def test_workers_killed_while_they_are_busy_change_nothing(
    make_loader: MakeLoader, tmp_path: Path, num_killed: int
):
    gate = Gate(tmp_path / "gate")

    def hold(element: int) -> int:
        if element in (0, 1):  # the first block of each worker
            gate.wait(element)
        return element * 2

    iterator = iter(make_loader(range(40), hold))
    iterator.start_prefetch()
    until(lambda: len(gate.arrived) == 2, "both workers are busy")

    kill_quietly(list(gate.arrived)[:num_killed])
    gate.open()

    assert list(iterator) == [element * 2 for element in range(40)]
    assert num_killed - 1 <= iterator.stats().num_restarts <= num_killed


@pytest.mark.parametrize("num_killed", [1, 2])
def test_workers_killed_while_they_are_idle_change_nothing(num_killed: int):
    iterator = iter(busy_loader())
    seen = [next(iterator)]
    workers = workers_of(os.getpid())
    until(lambda: all(map(is_idle, workers)), "the workers have nothing to do")

    kill_quietly(workers[:num_killed])
    until(gone(workers[:num_killed]), "they are dead")
    seen += iterator

    assert plain(seen) == expected()
    assert iterator.stats().num_restarts <= num_killed  # when all was made, nobody looks


def test_workers_killed_when_all_is_made_are_not_missed(make_loader: MakeLoader):
    iterator = iter(make_loader(range(12), lambda x: np.full(5000, x)))
    seen = [next(iterator)]
    workers = workers_of(os.getpid())
    until(lambda: all(map(is_idle, workers)), "the workers have nothing to do")

    kill_quietly(workers)
    until(gone(workers), "they are dead")
    seen += iterator

    assert plain(seen) == plain([np.full(5000, n) for n in range(12)])


def test_a_worker_killed_again_and_again_changes_nothing():
    iterator = iter(busy_loader(worker_options=WorkerOptions(max_restarts=6)))
    seen: list[Any] = []
    for _ in range(6):
        seen += islice(iterator, 4)
        kill_quietly(workers_of(os.getpid())[:1])
    seen += iterator

    assert plain(seen) == expected()


@pytest.mark.parametrize("seed", range(6))
def test_workers_killed_at_random_moments_change_nothing(seed: int):
    moments = random.Random(seed)
    options = WorkerOptions(max_restarts=1000)
    iterator = iter(busy_loader(worker_options=options, worker_buffer_size=seed % 3))
    iterator.start_prefetch()
    seen: list[Any] = []
    for _ in range(2):  # a block that was under way at three kills would end the stream
        _busy_wait(moments.uniform(0, 0.35))  # a worker starts in about as long
        for pid in workers_of(os.getpid()):
            if moments.random() < 0.7:
                kill_quietly([pid])
        seen += islice(iterator, moments.randrange(10))
    seen += iterator

    assert plain(seen) == expected()


def _busy_wait(seconds: float) -> None:
    """Let a random time pass: here any moment is right."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_state_taken_among_deaths_restores_without_workers():
    with iter(busy_loader()) as iterator:
        seen = [*islice(iterator, 10)]
        kill_quietly(workers_of(os.getpid()))
        seen += islice(iterator, 10)
        state = iterator.get_state()
    resumed = iter(busy_loader(worker_count=0))
    resumed.set_state(state)

    assert plain(seen + list(resumed)) == expected()


def test_a_batch_outlives_the_worker_that_made_it(make_loader: MakeLoader):
    iterator = iter(make_loader(range(40), lambda x: np.full(20_000, x), Batch(4)))
    batch = next(iterator)
    workers = workers_of(os.getpid())

    kill_quietly(workers)
    until(gone(workers), "they are dead")
    rest = list(iterator)

    assert np.array_equal(batch, np.repeat([0, 1, 2, 3], 20_000).reshape(4, -1))
    assert [int(each[0, 0]) for each in rest] == list(range(4, 40, 4))


def test_more_deaths_than_max_restarts_end_with_an_error_that_reports_that(
    make_loader: MakeLoader, tmp_path: Path
):
    notes = Notes(tmp_path / "deaths")

    def die_once(element: int) -> int:
        if element in (10, 20, 30) and str(element) not in notes.read():
            notes.write(element)
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    def run(max_restarts: int) -> list[int]:
        options = WorkerOptions(max_restarts=max_restarts)
        loader = make_loader(range(40), die_once, worker_count=1, worker_options=options)
        with iter(loader) as iterator:
            return list(iterator)

    with pytest.raises(WorkerError, match=r"More than 2 workers died.*SIGKILL.*`max_restarts`"):
        run(max_restarts=2)
    assert notes.read() == ["10", "20", "30"]
    notes.path.unlink()
    assert run(max_restarts=3) == list(range(40))


def test_with_no_restarts_the_first_death_ends_the_stream(make_loader: MakeLoader, tmp_path: Path):
    gate = Gate(tmp_path / "gate")

    def hold(element: int) -> int:
        if element == 3:
            gate.wait()
        return element

    options = WorkerOptions(max_restarts=0)
    iterator = iter(make_loader(range(10), hold, worker_options=options))
    seen = list(islice(iterator, 3))
    until(lambda: gate.arrived, "a worker is at the record")
    kill_quietly(gate.arrived)

    with pytest.raises(WorkerError, match="More than 0 workers died"):
        next(iterator)
    assert seen == [0, 1, 2]
    iterator.close()


def test_a_worker_that_is_killed_whenever_it_starts_ends_with_an_error(make_loader: MakeLoader):

    def die(number: int, count: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    options = WorkerOptions(worker_init_fn=die)
    iterator = iter(make_loader(range(10), worker_options=options))

    with pytest.raises(WorkerError, match=r"3 workers in a row died while they started.*SIGKILL"):
        next(iterator)
    assert iterator.stats().num_restarts <= 4
    iterator.close()


def test_one_worker_that_dies_whenever_it_starts_ends_with_an_error(make_loader: MakeLoader):

    def die(number: int, count: int) -> None:
        if number == 1:
            os._exit(3)

    options = WorkerOptions(worker_init_fn=die)
    iterator = iter(make_loader(range(10**6), worker_options=options))

    def run() -> None:
        for _ in iterator:
            pass

    with pytest.raises(WorkerError, match="exit code 3"):
        run()
    iterator.close()


def test_a_death_is_noticed_while_a_fork_of_the_worker_lives_on(
    make_loader: MakeLoader, tmp_path: Path
):
    gate = Gate(tmp_path / "gate")

    def fork(element: int) -> int:
        if element == 5 and not (tmp_path / "forked").exists():
            child = os.fork()
            if child == 0:
                gate.wait()
                os._exit(0)
            (tmp_path / "forked").write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return element

    iterator = iter(make_loader(range(20), fork))
    seen: list[int] = []
    consumer = threading.Thread(target=lambda: seen.extend(iterator), daemon=True)
    consumer.start()
    consumer.join(PATIENCE_S)
    try:
        assert not consumer.is_alive(), "the death is not noticed"
    finally:
        gate.open()
        consumer.join(PATIENCE_S)
        iterator.close()

    assert seen == list(range(20))
    assert iterator.stats().num_restarts == 1


def test_workers_start_in_the_process_that_uses_them_only(make_loader: MakeLoader):
    loader = make_loader(range(10))
    iterator = iter(loader)

    assert workers_of(os.getpid()) == []
    assert next(iterator) == 0
    assert all(map(is_worker, workers_of(os.getpid())))
    iterator.close()
