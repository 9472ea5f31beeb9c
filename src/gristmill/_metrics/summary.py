"""Summary of a run, for logs and debugging: the statistics, and what each worker did."""

from collections import defaultdict

from gristmill._base.format_numbers import format_seconds
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import TRANSFER_NAME, Timeline


def run_summary(stats: Stats, timeline: Timeline) -> str:
    """Return the statistics as a table, and a line for each worker about its last blocks.

    >>> print(run_summary(Stats(num_elements=2, elapsed_s=1.0, waited_s=0.25), Timeline()))
    waited for data 25.0% of the time: 0.25 s of 1.00 s, 2 elements
    consumer: Your code was busy for 75% of the time. A faster pipeline brings at most 1.3x.
    """
    busy_s: defaultdict[str, float] = defaultdict(float)
    copied_s: defaultdict[str, float] = defaultdict(float)
    num_blocks: defaultdict[str, int] = defaultdict(int)
    for span in timeline.spans():
        worker = span.track.worker
        if worker:
            busy_s[worker] += span.elapsed_s
            is_copy = span.name == TRANSFER_NAME
            copied_s[worker] += span.elapsed_s if is_copy else 0.0
            num_blocks[worker] += is_copy  # once for each block
    lines = [
        f"{worker}: {format_seconds(busy_s[worker])} in the last {num_blocks[worker]} blocks, of "
        f"which {format_seconds(copied_s[worker])} copied into shared memory"
        for worker in sorted(busy_s)
    ]
    return "\n".join([str(stats), *lines])
