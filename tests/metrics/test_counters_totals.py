"""The counters of all iterators of a loader, also of those that are gone."""

import gc
import pickle
import threading

from gristmill._metrics.counters import Counters, StatsTotal


class Owner:
    """Stands for an iterator."""


def watched(tally: StatsTotal, skipped: int) -> tuple[Owner, Counters]:
    owner, counters = Owner(), Counters(["reading"])
    counters.skipped = skipped
    tally.watch(owner, counters)
    return owner, counters


def test_what_the_living_and_the_dead_have_counted_adds_up():
    tally = StatsTotal()
    first, counters = watched(tally, 1)
    second, _ = watched(tally, 10)
    assert tally.stats().num_skipped == 11

    counters.skipped += 100
    assert tally.stats().num_skipped == 111

    del first
    counters.skipped += 1000  # by nobody: its owner is gone
    assert tally.stats().num_skipped == 111
    del second
    assert tally.stats().num_skipped == 111


class Memory:
    """Stands for the shared memory of a pool."""

    shared_bytes = 0


def test_shared_memory_is_what_is_mapped_now_and_counted_once():
    tally, memory, other = StatsTotal(), Memory(), Memory()
    first, first_counters = watched(tally, 0)
    second, second_counters = watched(tally, 0)
    for counters in (first_counters, second_counters):
        counters.watch_memory(memory)
    second_counters.watch_memory(other)
    memory.shared_bytes, other.shared_bytes = 1, 10
    assert tally.stats().shared_memory_bytes == 11

    del first, second
    memory.shared_bytes = 2
    assert tally.stats().shared_memory_bytes == 12

    del memory  # with its workers and the last array
    assert tally.stats().shared_memory_bytes == 10


def test_a_thousand_owners_leave_nothing_but_the_sum():
    tally = StatsTotal()
    for _ in range(1000):
        watched(tally, 1)

    assert tally.stats().num_skipped == 1000
    assert len(tally._live) == 0


def test_an_owner_in_a_cycle_is_counted_when_it_is_collected():
    tally = StatsTotal()
    owner, _ = watched(tally, 5)
    cycle = [owner]
    cycle.append(cycle)  # pyright: ignore[reportArgumentType]
    del owner, cycle
    gc.collect()

    assert tally.stats().num_skipped == 5
    assert len(tally._live) == 0


def test_owners_may_go_in_any_thread():
    tally = StatsTotal()
    owners = [watched(tally, 1) for _ in range(50)]
    threads = [threading.Thread(target=owners.pop) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert tally.stats().num_skipped == 50


def test_a_copy_in_another_process_counts_for_itself():
    tally = StatsTotal()
    owner, _ = watched(tally, 5)

    copy = pickle.loads(pickle.dumps(tally))

    assert copy.stats().num_skipped == 0
    assert tally.stats().num_skipped == 5
    del owner
