"""Keys are found ahead only where requests are consecutive, and never past an epoch or the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.access import records as windows
from gristmill._engine.access.records import as_range, in_windows
from gristmill.types import Span


class Finder:
    """Squares positions, and records which it is asked for."""

    def __init__(self) -> None:
        self.requests: list[range] = []

    def __call__(self, positions: range) -> Span:
        self.requests.append(positions)
        return np.arange(positions.start, positions.stop) ** 2


def test_the_first_request_looks_no_further_and_consecutive_ones_ever_further():
    find = Finder()
    find_keys = in_windows(find, epoch=1000, end=700)

    for start in range(0, 700, 2):
        assert list(find_keys(range(start, start + 2))) == [start**2, (start + 1) ** 2]

    assert find.requests == [range(2), range(2, 34), range(34, 546), range(546, 700)]


def test_a_request_elsewhere_looks_no_further():
    find = Finder()
    find_keys = in_windows(find, epoch=10**9)

    for start in (500_000, 30, 400_000):
        find_keys(range(start, start + 3))

    assert [len(request) for request in find.requests] == [3, 3, 3]


def test_without_an_end_the_lookahead_ends_with_the_epoch():
    find = Finder()
    find_keys = in_windows(find, epoch=10)

    for start in range(0, 30, 3):
        find_keys(range(start, start + 3))

    assert find.requests == [
        range(3),
        range(3, 10),
        range(9, 12),
        range(12, 20),
        range(18, 21),
        range(21, 30),
    ]


@given(
    requests=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), max_size=30),
    window=st.integers(1, 100),
    epoch=st.integers(1, 100),
)
def test_keys_are_those_found_without_lookahead(
    requests: list[tuple[int, int]], window: int, epoch: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", window)
        find_keys = in_windows(Finder(), epoch=epoch)
        for start, length in requests:
            positions = range(start, start + length)
            assert list(find_keys(positions)) == [position**2 for position in positions]


@given(st.lists(st.integers(0, 5), max_size=4) | st.integers(0, 5).map(lambda n: [n, n + 1]))
def test_only_consecutive_positions_are_a_range(positions: list[int]):
    found = as_range(np.array(positions, dtype=np.int64))

    if found is None:
        assert not positions or positions != list(
            range(positions[0], positions[0] + len(positions))
        )
    else:
        assert list(found) == positions


def test_a_range_with_gaps_is_not_consecutive():
    assert as_range(range(3, 9)) == range(3, 9)
    assert as_range(range(3, 9, 2)) is None
    assert as_range(range(3, 3)) is None
