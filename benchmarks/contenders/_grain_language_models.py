"""The pipelines for language models that Grain and gristmill share."""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _corpus
from benchmarks._documents import NUM_BINS, ROW_LENGTH
from benchmarks.contenders._grain_api import read_options

Start = Callable[[], Any]
WINDOW = 64


class Tokenize:
    """Turns the bytes of a text into its tokens. Opens the tokenizer where it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tokenizer: Any = None

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = _corpus.open_tokenizer(self.folder)
        return self._tokenizer

    def open(self) -> None:
        """Open the tokenizer, so that a measurement without workers does not contain it."""
        _ = self.tokenizer

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_tokenizer": None}

    def __call__(self, text: bytes) -> dict[str, Any]:
        return {"tokens": np.array(self.tokenizer.encode(text.decode()).ids, np.int32)}


def as_tokens(record: bytes) -> dict[str, Any]:
    """Return the tokens of a record."""
    return {"tokens": np.frombuffer(record, np.int32)}


def packed(
    grain: Any,
    folder: Path,
    *,
    kind: str,
    worker_count: int = 0,
    num_threads: int | None = None,
    tokenize: Callable[[Path], Any] = Tokenize,
) -> Start:
    """Read texts or tokens from ArrayRecord files, shuffle, pack into rows, batch."""
    source = grain.sources.ArrayRecordDataSource(_corpus.shards(folder, kind))
    transform = as_tokens if kind == "tokens" else tokenize(folder)
    if isinstance(transform, Tokenize) and not worker_count:
        transform.open()
    stream = (
        grain.MapDataset.source(source)
        .shuffle(seed=0)
        .map(transform)
        .to_iter_dataset(read_options(grain, num_threads))
    )
    return _pack(grain, stream, worker_count)


def packed_table(
    grain: Any,
    folder: Path,
    *,
    kind: str,
    tokenize: Callable[[Path], Any] = Tokenize,
) -> Start:
    """Read texts from a Parquet file in its order, pack into rows, batch.

    Grain has no random access to Parquet, so nothing is shuffled.
    """
    importlib.import_module("pandas")  # which Grain imports at the first row
    importlib.import_module("pyarrow.parquet")
    transform = tokenize(folder)
    transform.open()
    rows = grain.experimental.ParquetIterDataset(_corpus.table(folder, kind))
    return _pack(grain, rows.map(text_of).map(transform), 0)


def text_of(row: dict[str, Any]) -> bytes:
    """Return the text of a row of the table."""
    return row["text"].encode()


def _pack(grain: Any, stream: Any, worker_count: int) -> Start:
    packed = grain.experimental.FirstFitPackIterDataset(
        stream, length_struct={"tokens": ROW_LENGTH}, num_packing_bins=NUM_BINS
    )
    batches = packed.batch(_corpus.BATCH_SIZE)
    if worker_count:
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=worker_count))
    return lambda: iter(batches)


def split_rows(grain: Any) -> Any:
    """Return the transform that concatenates a window of documents and splits it into rows."""

    class SplitRows(grain.experimental.FlatMapTransform):
        max_fan_out = WINDOW

        def flat_map(self, documents: list[Any]) -> list[dict[str, Any]]:
            tokens = np.concatenate(documents)
            rows = np.zeros((-(-len(tokens) // ROW_LENGTH), ROW_LENGTH), np.int32)
            rows.reshape(-1)[: len(tokens)] = tokens
            return [{"tokens": row} for row in rows]

    return SplitRows()


def mixture(grain: Any, folder: Path, *, num_threads: int | None = None) -> Start:
    """Mix endless sources, pack windows of documents, batch."""
    datasets = [
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource([path]))
        .shuffle(seed=number)
        .map(partial(np.frombuffer, dtype=np.int32))
        .repeat()
        for number, path in enumerate(_corpus.shards(folder, "tokens"))
    ]
    stream = grain.MapDataset.mix(datasets, weights=[4, 3, 2, 1]).to_iter_dataset(
        read_options(grain, num_threads)
    )
    windows = stream.batch(WINDOW, batch_fn=list)
    rows = grain.experimental.FlatMapIterDataset(windows, split_rows(grain))
    batches = rows.batch(_corpus.BATCH_SIZE)
    return lambda: iter(batches)
