"""Plan the batches of an epoch from the lengths of its elements, before any of them is read."""

from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._data.batching.buckets import BucketByLength
from gristmill.types import Indices


@final
@dataclass(frozen=True, kw_only=True)
class BucketSchedule:
    """The batches of an epoch, in order. Batch b has elements `order[starts[b]:][:counts[b]]`."""

    order: Indices
    """The elements of the epoch, bucket by bucket."""
    starts: Indices
    counts: Indices
    buckets: Indices

    def __len__(self) -> int:
        return len(self.starts)

    def elements(self, batch: int) -> Indices:
        """Return the elements of a batch. A batch of padding has an example of its group."""
        start = int(self.starts[batch])
        return self.order[start : start + max(1, int(self.counts[batch]))]


def num_batches(buckets: BucketByLength, numbers: Indices, *, group_size: int) -> int:
    """Return how many batches elements make, by the bucket of each of them."""
    counts = np.bincount(numbers, minlength=len(buckets.sizes))[: len(buckets.sizes)]
    units = np.array(buckets.sizes) * group_size
    groups = counts // units if buckets.remainder == "drop" else -(-counts // units)
    return int(groups.sum()) * group_size


def plan_batches(buckets: BucketByLength, numbers: Indices, *, group_size: int) -> BucketSchedule:
    """Return the batches of elements in the order in which a stream of them fills buckets.

    Args:
        buckets: The buckets.
        numbers: The bucket of each element, in the order of the elements. Those beyond the last
            bucket are dropped.
        group_size: How many consecutive batches are of the same bucket.
    """
    narrow = np.min_scalar_type(len(buckets.sizes))
    order = np.argsort(numbers.astype(narrow), kind="stable")  # a radix sort for few buckets
    ends = np.cumsum(np.bincount(numbers, minlength=len(buckets.sizes)))
    first = 0
    starts: list[Indices] = []
    counts: list[Indices] = []
    keys: list[Indices] = []
    owners: list[Indices] = []
    for bucket, size in enumerate(buckets.sizes):
        end, unit = int(ends[bucket]), size * group_size
        num_full, num_left = divmod(end - first, unit)
        filled_at = order[first + unit - 1 : first + num_full * unit : unit]
        starts.append(np.arange(first, first + num_full * unit, size))
        counts.append(np.full(num_full * group_size, size))
        keys.append(np.repeat(filled_at, group_size))
        if num_left and buckets.remainder != "drop":
            # Spread over the group, so that no batch of it is without an element if possible.
            shares = np.full(group_size, num_left // group_size)
            shares[: num_left % group_size] += 1
            begins = first + num_full * unit + np.cumsum(shares) - shares
            starts.append(np.minimum(begins, end - 1))
            counts.append(shares)
            keys.append(np.full(group_size, len(numbers) + bucket))
        num_new = sum(map(len, starts)) - sum(map(len, owners))
        owners.append(np.full(num_new, bucket))
        first = end
    by_key = np.argsort(np.concatenate(keys), kind="stable")
    return BucketSchedule(
        order=order,
        starts=np.concatenate(starts)[by_key],
        counts=np.concatenate(counts)[by_key],
        buckets=np.concatenate(owners)[by_key],
    )
