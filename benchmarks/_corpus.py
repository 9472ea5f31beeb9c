"""A synthetic corpus: texts, a tokenizer trained on them, and the texts as tokens, in files."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import _files
from benchmarks._documents import ROW_LENGTH, make_documents

NUM_TEXTS = 8_000
NUM_TRAINING = 500
NUM_SHARDS = 4
VOCABULARY = 4_096
BATCH_SIZE = 8
ROW_GROUP = 1_000


def make_texts(count: int = NUM_TEXTS) -> list[str]:
    """Return texts of lognormal lengths, of words that are as frequent as in natural languages."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(5_000)])
    weights = 1 / np.arange(1, len(words) + 1)
    weights /= weights.sum()
    lengths = np.clip(rng.lognormal(5.0, 1.0, count), 5, ROW_LENGTH).astype(int)
    return [" ".join(rng.choice(words, length, p=weights)) for length in lengths]


def shards(folder: Path, kind: str) -> list[str]:
    """Return the paths of the files with the texts or tokens."""
    return [str(folder / f"{kind}-{number}.array_record") for number in range(NUM_SHARDS)]


def table(folder: Path, kind: str = "texts") -> str:
    """Return the path of the texts as a Parquet file."""
    return str(folder / f"{kind}.parquet")


def open_tokenizer(folder: Path) -> Any:
    """Return the tokenizer. Token 0 is the padding."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(ROW_LENGTH)
    return tokenizer


def expected_tokens(folder: Path) -> int:
    """Return how many tokens all texts have."""
    encoded = open_tokenizer(folder).encode_batch_fast(make_texts())
    return sum(len(each.ids) for each in encoded)


def prepare(folder: Path) -> str:
    """Train the tokenizer, and write texts and tokens as ArrayRecord files."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = make_texts()
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["[PAD]"], show_progress=False
    )
    tokenizer.train_from_iterator(texts[:NUM_TRAINING], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write = _files.WRITERS["array_record"]
    documents: list[NDArray[np.int32]] = make_documents()
    for number in range(NUM_SHARDS):
        write(shards(folder, "texts")[number], [text.encode() for text in texts[number::4]])
        write(shards(folder, "tokens")[number], [each.tobytes() for each in documents[number::4]])
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": texts}), table(folder), row_group_size=ROW_GROUP)
    return (
        f"{len(texts):,} texts and {len(documents):,} tokenized documents as ArrayRecord, and the "
        "texts as Parquet"
    )
