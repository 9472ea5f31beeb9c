"""Each permit is taken by the worker or taken back by the parent, never by both."""

import os
import threading

import pytest

from gristmill._engine.executors.processes.channel import Permits, take_permits


@pytest.fixture
def permits():
    permits = Permits()
    yield permits
    permits.close()


def test_the_parent_takes_back_what_the_worker_has_not_taken(permits: Permits):
    for _ in range(3):
        permits.add()
    assert take_permits(permits.descriptor, 1) == 1

    assert permits.take_back(5) == 2
    assert permits.take_back(5) == 0
    assert take_permits(permits.descriptor, 1) == 0


def test_no_more_permits_are_taken_back_than_asked_for(permits: Permits):
    for _ in range(3):
        permits.add()

    assert permits.take_back(2) == 2
    assert take_permits(permits.descriptor, 1) == 1


def test_a_worker_and_the_parent_never_take_the_same_permit(permits: Permits):
    total = 20_000
    descriptor = os.dup(permits.descriptor)
    is_added = threading.Event()
    taken = 0

    def work() -> None:
        nonlocal taken
        while True:
            was_added = is_added.is_set()
            count = take_permits(descriptor, 1)
            taken += count
            if was_added and not count:
                return

    worker = threading.Thread(target=work)
    worker.start()
    taken_back = 0
    for number in range(total):
        permits.add()
        if number % 3 == 0:
            taken_back += permits.take_back(2)
    is_added.set()
    worker.join()
    os.close(descriptor)

    assert taken + taken_back == total


def test_closed_permits_cannot_be_taken_back():
    permits = Permits()
    permits.add()
    permits.close()
    permits.close()

    assert permits.take_back(1) == 0
