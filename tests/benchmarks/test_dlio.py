"""The figures of DLIO are read from its output."""

from benchmarks.dlio.__main__ import throughputs

LINE = "[INFO] Epoch {} - Block 1 [Training] Throughput (samples/second): {} [statscounter.py:286]"


def test_the_throughput_of_each_epoch_is_found_in_the_order_of_epochs():
    output = "\n".join(["other", LINE.format(2, "157.3"), LINE.format(1, "7.0844"), "more"])

    assert throughputs(output) == [7.0844, 157.3]
