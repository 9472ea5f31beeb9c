"""What a pipeline delivers, in short: the number of its elements, a checksum and the time."""

import hashlib
import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np


def report(elements: Iterable[Any], **versions: str) -> None:
    """Iterate over all elements, and print their number, checksum and time as one line of JSON."""
    import grain
    import jax

    checksum = hashlib.sha256()
    count = 0
    begin = time.perf_counter()
    for element in elements:
        count += 1
        for leaf in jax.tree.leaves(element):
            array = np.asarray(leaf)
            checksum.update(f"{array.dtype.kind} {array.shape} {array.tolist()}".encode())
    seconds = time.perf_counter() - begin
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
