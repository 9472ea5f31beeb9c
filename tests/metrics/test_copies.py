"""How much of the time of a run is that of copies."""

import pytest

from gristmill._metrics.copies import copied_share, copy_bytes_per_s


@pytest.mark.parametrize(
    ("num_bytes", "cpu_s", "share"), [(100, 100.0, 0.1), (100, 19.0, 1.0), (0, 1.0, 0.0), (1, 0, 0)]
)
def test_steps_that_mostly_copy_do_nothing_else(num_bytes: int, cpu_s: float, share: float):
    assert copied_share(num_bytes, cpu_s, bytes_per_s=10.0) == share


def test_few_bytes_need_no_measurement():
    copy_bytes_per_s.cache_clear()

    assert copied_share(10**6, 1.0) == 0.0
    assert copy_bytes_per_s.cache_info().currsize == 0
    assert copied_share(10**18, 1.0) == 1.0
    assert copy_bytes_per_s() > 10**6
