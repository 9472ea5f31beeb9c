"""The dataset programs that Grain and gristmill share: the same calls on either module."""

import itertools
from typing import Any

from benchmarks._documents import NUM_BINS, ROW_LENGTH
from benchmarks.contenders._grain_api import Start, read_options


def shuffled_integers(
    grain: Any, count: int, batch_size: int, *, num_threads: int | None = None
) -> Start:
    """Shuffle a range, add one, and batch."""
    dataset = grain.MapDataset.range(count).shuffle(seed=0).map(lambda x: x + 1).batch(batch_size)
    return _iterated(grain, dataset, num_threads)


def mixed_integers(
    grain: Any, count: int, batch_size: int, *, num_sources: int, num_threads: int | None = None
) -> Start:
    """Mix several ranges by element, add one, and batch."""
    mixed = grain.MapDataset.mix(_ranges(grain, count, num_sources))
    return _iterated(grain, mixed.map(lambda x: x + 1).batch(batch_size), num_threads)


def mixed_streams(
    grain: Any, count: int, batch_size: int, *, num_sources: int, num_threads: int | None = None
) -> Start:
    """Mix several ranges as streams, add one, and batch."""
    options = read_options(grain, num_threads)
    ranges = _ranges(grain, count, num_sources)
    mixed = grain.IterDataset.mix([one.to_iter_dataset(options) for one in ranges])
    dataset = mixed.map(lambda x: x + 1).batch(batch_size)
    return lambda: iter(dataset)


def endless(grain: Any, count: int) -> tuple[Start, Any]:
    """Shuffle and repeat a range indefinitely. Also return a function that moves to a step."""
    dataset = grain.MapDataset.range(count).shuffle(seed=0).repeat()
    stream = dataset.to_iter_dataset(read_options(grain, 0))
    return lambda: iter(stream), grain.experimental.set_next_index


def packing(
    grain: Any, documents: list[Any], *, packer: str, num_threads: int | None = None
) -> Start:
    """Pack documents into rows."""
    stream = (
        grain.MapDataset.source(documents)
        .map(lambda tokens: {"tokens": tokens})
        .to_iter_dataset(read_options(grain, num_threads))
    )
    lengths = {"tokens": ROW_LENGTH}
    if packer == "concat_then_split":
        dataset = grain.experimental.ConcatThenSplitIterDataset(stream, length_struct=lengths)
    else:
        kinds = {
            "first_fit": grain.experimental.FirstFitPackIterDataset,
            "best_fit": grain.experimental.BestFitPackIterDataset,
        }
        dataset = kinds[packer](stream, length_struct=lengths, num_packing_bins=NUM_BINS)
    return lambda: iter(dataset)


def _ranges(grain: Any, count: int, num_sources: int) -> list[Any]:
    bounds = [count * number // num_sources for number in range(num_sources + 1)]
    return [grain.MapDataset.range(start, stop) for start, stop in itertools.pairwise(bounds)]


def _iterated(grain: Any, dataset: Any, num_threads: int | None) -> Start:
    stream = dataset.to_iter_dataset(read_options(grain, num_threads))
    return lambda: iter(stream)
