from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.tables.table_files import group_chunks

GROUPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=20)


@settings(deadline=None)
@given(groups=GROUPS, max_bytes=st.integers(0, 50))
def test_chunks_cover_all_rows_in_order_and_are_not_too_large(
    groups: list[tuple[int, int]], max_bytes: int
):
    counts, sizes = [count for count, _ in groups], [size for _, size in groups]

    chunks = list(group_chunks(7, counts, sizes, max_bytes=max_bytes))

    assert sum(chunk.num_rows for chunk in chunks) == sum(counts)
    for previous, chunk in pairwise(chunks):
        assert chunk.first == previous.stop
    for chunk in chunks:
        assert chunk.file == 7
        assert chunk.num_rows == sum(counts[chunk.first : chunk.stop]) > 0
        has_several = sum(count > 0 for count in counts[chunk.first : chunk.stop]) > 1
        assert not has_several or sum(sizes[chunk.first : chunk.stop]) <= max_bytes


def test_large_row_groups_are_chunks_of_their_own():
    chunks = list(group_chunks(0, [1, 1, 1, 1], [30, 4, 4, 30], max_bytes=10))
    assert [(chunk.first, chunk.stop) for chunk in chunks] == [(0, 1), (1, 3), (3, 4)]
