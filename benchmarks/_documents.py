"""Tokenized documents of many lengths. Each token identifies its document."""

import numpy as np
from numpy.typing import NDArray

from benchmarks._clock import Epoch

NUM_DOCUMENTS = 100_000
ROW_LENGTH = 2048
NUM_BINS = 64


def make_documents(count: int = NUM_DOCUMENTS) -> list[NDArray[np.int32]]:
    """Return documents of lognormal lengths, whose tokens are the document's number, from 1."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.5, 1.0, count), 1, ROW_LENGTH).astype(int)
    return [np.full(length, number, np.int32) for number, length in enumerate(lengths, start=1)]


def check_whole(epoch: Epoch, documents: list[NDArray[np.int32]], *, may_split: bool) -> int:
    """Check that documents are complete, and return how many of them an epoch contains."""
    seen, lengths = np.unique(epoch.values[epoch.values > 0], return_counts=True)
    expected = np.array([len(document) for document in documents])
    whole = lengths == expected[seen - 1]
    if may_split and not epoch.complete:  # the last one continues in a row that was not read
        whole[-1] = True
    if not whole.all():
        raise AssertionError(
            f"Expected {expected[seen[~whole][0] - 1]} tokens of document {seen[~whole][0]}, got "
            f"{lengths[~whole][0]}."
        )
    if epoch.complete and len(seen) != len(documents):
        raise AssertionError(f"Expected {len(documents)} documents, got {len(seen)}.")
    return len(seen)
