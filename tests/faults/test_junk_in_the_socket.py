"""User code that writes to the socket of its worker by mistake: an error, never a hang."""

import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import DataLoader, WorkerOptions
from gristmill._engine.executors.processes.channel import frame
from gristmill.errors import WorkerError
from tests.faults.gates import Notes

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")

JUNK = {
    "text": b"progress: 50%\n",
    "zeros": bytes(64),
    "a huge length": b"\xff" * 8,
    "one byte": b"\0",
    "an unknown message": frame(pickle.dumps(("done", 3))),
    "a broken pickle": frame(b"junk"),
}


def write_to_socket(data: bytes) -> None:
    """In a worker: write to every socket it has."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        except OSError:  # that of the folder itself
            continue
        if is_socket:
            os.write(descriptor, data)


@pytest.mark.parametrize("junk", JUNK.values(), ids=list(JUNK))
def test_a_record_that_writes_to_the_socket_each_time_is_named(
    make_loader: MakeLoader, junk: bytes
):
    def write(element: int) -> int:
        if element == 13:
            write_to_socket(junk)
        return element

    seen: list[int] = []
    with iter(make_loader(range(40), write)) as iterator:
        with pytest.raises(WorkerError) as caught:
            seen.extend(iterator)
        assert seen == list(range(13))

    assert str(caught.value) == (
        "Record 13 of the source (position 13 of the stream) killed its worker 3 times, the last "
        "time by data in the worker's socket that is not a message. Leave it out of the source, or "
        "fix the code that reads it."
    )


@pytest.mark.parametrize("junk", JUNK.values(), ids=list(JUNK))
def test_a_worker_whose_socket_was_written_to_once_is_replaced(
    make_loader: MakeLoader, tmp_path: Path, junk: bytes
):
    notes = Notes(tmp_path / "written")

    def write_once(element: int) -> int:
        if element == 13 and not notes.read():
            notes.write(element)
            write_to_socket(junk)
        return element

    with iter(make_loader(range(40), write_once)) as iterator:
        assert list(iterator) == list(range(40))
        assert iterator.stats().num_restarts == 1


def test_workers_that_write_to_their_socket_while_they_start_are_given_up(make_loader: MakeLoader):
    def write(number: int, num_workers: int) -> None:
        write_to_socket(b"hello")

    loader = make_loader(range(40), worker_options=WorkerOptions(worker_init_fn=write))
    with iter(loader) as iterator, pytest.raises(WorkerError) as caught:
        next(iterator)

    assert str(caught.value) == (
        "3 workers in a row died while they started: data in the worker's socket that is not a "
        "message."
    )
