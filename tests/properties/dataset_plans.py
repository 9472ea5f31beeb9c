"""Datasets of documents from two sources, with steps that hold elements, as values that print."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gristmill import MapDataset, experimental

SIZES = (20, 13)
"""The numbers of records of two sources. Record i of source s is a document of 100 * s + i + 1."""


def source(number: int) -> Any:
    return MapDataset.source(
        [
            {"tokens": np.full(1 + index * 3 % 5, 100 * number + index + 1)}
            for index in range(SIZES[number])
        ]
    )


def two_sources(shard: tuple[int, int]) -> Any:
    parts = [source(number).shuffle(seed=number).repeat(2) for number in range(2)]
    return MapDataset.mix(parts, [3, 2])[shard[0] :: shard[1]].to_iter_dataset()


def two_streams(shard: tuple[int, int]) -> Any:
    first, second = (
        source(number).shuffle(seed=number)[shard[0] :: shard[1]].to_iter_dataset()
        for number in range(2)
    )
    return first + second


def cached(shard: tuple[int, int]) -> Any:
    first = source(0).cache().shuffle(seed=1).repeat(2)
    return MapDataset.concatenate([first, source(1)])[shard[0] :: shard[1]].to_iter_dataset()


BELOW: dict[str, Callable[[tuple[int, int]], Any]] = {
    "two sources": two_sources,
    "two streams": two_streams,
    "cached": cached,
}
BETWEEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda ds: ds,
    "filter": lambda ds: ds.filter(lambda document: bool(document["tokens"][0] % 3)),
    "window": lambda ds: ds.shuffle(buffer_size=5, seed=2),
    "map": lambda ds: ds.map(lambda document: dict(document)),
    "enumerate": lambda ds: ds.enumerate().map(lambda pair: pair[1]),
}
ABOVE: dict[str, Callable[[Any], Any]] = {
    "single": lambda ds: ds,
    "padded": lambda ds: ds.pad_batch(3),
    "first fit": lambda ds: _pack(experimental.FirstFitPackIterDataset, ds).batch(2),
    "best fit": lambda ds: _pack(experimental.BestFitPackIterDataset, ds),
    "concatenated": lambda ds: experimental.ConcatThenSplitIterDataset(
        ds, length_struct={"tokens": 7}
    ),
    "buckets": lambda ds: ds.bucket_by_length([2, 5], batch_sizes=3, length="tokens"),
}


def _pack(kind: Any, ds: Any) -> Any:
    return kind(ds, length_struct={"tokens": 8}, num_packing_bins=3)


def dataset(below: str, between: Iterable[str], above: str, shard: tuple[int, int] = (0, 1)) -> Any:
    made = BELOW[below](shard)
    for name in between:
        made = BETWEEN[name](made)
    return ABOVE[above](made)


def documents_in(element: Any) -> Counter[int]:
    """Return the number of tokens of each document in an element."""
    return Counter(number for number in np.ravel(element["tokens"]).tolist() if number)


def total(elements: Iterable[Any]) -> Counter[int]:
    return sum(map(documents_in, elements), Counter[int]())


plans = st.tuples(
    st.sampled_from(sorted(BELOW)),
    st.lists(st.sampled_from(sorted(BETWEEN)), max_size=2),
    st.sampled_from(sorted(ABOVE)),
)
