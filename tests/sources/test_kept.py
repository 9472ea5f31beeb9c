import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gristmill.sources._kept import Kept


def test_what_is_kept_is_not_made_again():
    kept = Kept[str](limit=10)
    assert kept.get(1, lambda: ("first", 5)) == "first"
    assert kept.get(1, lambda: ("second", 5)) == "first"


def test_what_was_not_used_for_longest_goes_first():
    kept = Kept[int](limit=2)
    for number in (1, 2, 1, 3):
        kept.get(number, lambda number=number: (number, 1))
    made: list[int] = []
    for number in (1, 3, 2):
        kept.get(number, lambda number=number: (made.append(number) or number, 1))
    assert made == [2]


def test_one_stays_however_large_it_is():
    kept = Kept[str](limit=1)
    kept.get(1, lambda: ("large", 100))
    assert kept.get(1, lambda: ("again", 100)) == "large"
    kept.get(2, lambda: ("other", 100))
    assert len(kept) == 1


def test_threads_that_want_the_same_have_it_made_once():
    kept = Kept[object](limit=10)
    is_made = threading.Event()
    num_made = 0

    def make() -> tuple[object, int]:
        nonlocal num_made
        num_made += 1
        is_made.wait(10)
        return object(), 1

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(kept.get, 1, make) for _ in range(4)]
        is_made.set()
        assert len({id(one.result()) for one in waiting}) == 1
    assert num_made == 1


def test_threads_make_different_ones_at_the_same_time():
    kept = Kept[int](limit=10)
    both = threading.Barrier(2, timeout=10)
    with ThreadPoolExecutor(2) as threads:
        waiting = [
            threads.submit(kept.get, n, lambda n=n: (both.wait() * 0 + n, 1)) for n in (1, 2)
        ]
        assert [one.result() for one in waiting] == [1, 2]


def test_an_error_reaches_who_asked_and_who_waited_makes_it_anew():
    kept = Kept[str](limit=10)
    has_begun, may_fail = threading.Event(), threading.Event()

    def fail() -> tuple[str, int]:
        has_begun.set()
        may_fail.wait(10)
        raise OSError("no")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(kept.get, 1, fail)
        has_begun.wait(10)
        second = threads.submit(kept.get, 1, lambda: ("made", 1))
        may_fail.set()
        with pytest.raises(OSError, match="no"):
            first.result()
        assert second.result() == "made"
