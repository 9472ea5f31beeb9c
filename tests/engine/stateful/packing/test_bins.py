"""Bins are chosen as by a plain loop over all of them."""

from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.stateful.packing.bins import open_bins

CAPACITY = 12
ALIGNMENT = 4


def aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def plain(
    lengths: list[int],
    costs: list[int],
    count: int,
    *,
    is_best_fit: bool,
    max_documents: int | None,
) -> list[int]:
    """Return the bins of documents up to one that fits in none."""
    rooms, numbers = [CAPACITY] * count, [0] * count
    placed: list[int] = []
    for length, cost in zip(lengths, costs, strict=True):
        able = [b for b in range(count) if rooms[b] >= length and numbers[b] != max_documents]
        if not able:
            break
        chosen = min(able, key=lambda b: rooms[b]) if is_best_fit else able[0]
        placed.append(chosen)
        rooms[chosen] -= cost
        numbers[chosen] += 1
    return placed


@given(
    lengths=st.lists(st.integers(0, CAPACITY), max_size=200),
    count=st.integers(1, 20),
    is_aligned=st.booleans(),
    max_documents=st.none() | st.integers(1, 4),
    num_before=st.integers(0, 200),
)
def test_first_fit_chooses_the_first_bin_with_room(
    lengths: list[int],
    count: int,
    is_aligned: bool,
    max_documents: int | None,
    num_before: int,
):
    costs = list(map(aligned, lengths)) if is_aligned else lengths
    bins = open_bins([CAPACITY], count, max_documents=max_documents)

    placed = bins.assign([lengths[:num_before]], [costs[:num_before]], 0)
    if len(placed) == min(num_before, len(lengths)):
        placed += bins.assign([lengths], [costs], len(placed))

    expected = plain(lengths, costs, count, is_best_fit=False, max_documents=max_documents)
    assert placed == expected


@given(
    lengths=st.lists(st.integers(0, CAPACITY), max_size=200),
    count=st.integers(1, 20),
    is_aligned=st.booleans(),
    num_before=st.integers(0, 200),
)
def test_best_fit_chooses_the_first_bin_with_the_least_sufficient_room(
    lengths: list[int], count: int, is_aligned: bool, num_before: int
):
    costs = list(map(aligned, lengths)) if is_aligned else lengths
    bins = open_bins([CAPACITY], count, is_best_fit=True)

    placed = bins.assign([lengths[:num_before]], [costs[:num_before]], 0)
    if len(placed) == min(num_before, len(lengths)):
        placed += bins.assign([lengths], [costs], len(placed))

    assert placed == plain(lengths, costs, count, is_best_fit=True, max_documents=None)
