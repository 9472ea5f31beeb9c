"""The bare tokenizer: no shuffling, packing or batching."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _corpus


def one_by_one(folder: Path) -> Callable[[], Iterator[dict[str, Any]]]:
    """Tokenize the texts one after the other, in memory."""
    tokenizer, texts = _corpus.open_tokenizer(folder), _corpus.make_texts()
    return lambda: ({"tokens": np.array(tokenizer.encode(text).ids, np.int32)} for text in texts)
