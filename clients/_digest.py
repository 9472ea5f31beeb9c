"""What a pipeline delivers, in short: the number of its elements, a checksum and its own time."""

import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np


def report(elements: Iterable[Any], **versions: str) -> None:
    """Iterate over all elements, and print their number, checksum and time as one line of JSON.

    The time is that of the iteration alone, without the checksum.
    """
    import grain
    import jax

    checksum = hashlib.sha256()
    count = 0
    begin = time.perf_counter()
    iterator = iter(elements)
    seconds = time.perf_counter() - begin
    end = object()
    while True:
        begin = time.perf_counter()
        element = next(iterator, end)
        seconds += time.perf_counter() - begin
        if element is end:
            break
        count += 1
        for leaf in jax.tree.leaves(element):
            array = np.asarray(leaf)
            content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            checksum.update(f"{array.dtype} {array.shape} ".encode() + content)
    print(
        json.dumps(
            {
                "count": count,
                "checksum": checksum.hexdigest(),
                "seconds": seconds,
                "package": grain.MapDataset.__module__.partition(".")[0],
                "versions": versions,
            }
        )
    )
