"""The bare tokenizer: no shuffling, packing or batching."""

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _corpus


def one_by_one(folder: Path) -> Callable[[], Iterator[dict[str, Any]]]:
    """Tokenize the texts one after the other, in memory."""
    tokenizer, texts = _corpus.open_tokenizer(folder), _corpus.make_texts()
    return lambda: ({"tokens": np.array(tokenizer.encode(text).ids, np.int32)} for text in texts)


def in_processes(folder: Path, *, count: int) -> Callable[[], Iterator[dict[str, Any]]]:
    """Tokenize the texts in plain processes, which only send how many tokens there are."""
    texts = _corpus.make_texts()
    fork = multiprocessing.get_context("fork")  # safe, because this process has no threads
    counts = fork.SimpleQueue()

    def run(number: int) -> None:
        tokenizer = _corpus.open_tokenizer(folder)
        for text in texts[number::count]:
            counts.put(len(np.array(tokenizer.encode(text).ids, np.int32)))

    def start() -> Iterator[dict[str, Any]]:
        processes = [fork.Process(target=run, args=(number,)) for number in range(count)]
        for process in processes:
            process.start()
        for _ in texts:
            yield {"tokens": np.ones(counts.get(), np.int32)}
        for process in processes:
            process.join()

    return start
