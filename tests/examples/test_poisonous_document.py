"""A document that makes the loss jump is found, left out, and has left no trace in the training.

The model, its packed and mixed dataset and its checkpoints are those of the example.
"""

from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import gristmill as gm
from gristmill._checkpoint.ledger_file import find_ledgers, read_ledger

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_lm.py"
BATCH_SIZE, NUM_BINS, NUM_STEPS, SAVE_EVERY, SEED = 4, 8, 28, 4, 5
POISON = 753
"""A record of the first text, which comes in step 22, when the model knows which bytes texts have.
At the checkpoint before, after step 20, it has not been read."""


@pytest.fixture(scope="module")
def example() -> Any:
    spec = spec_from_file_location("train_lm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.NUM_BINS = NUM_BINS
    return module


@pytest.fixture(scope="module")
def texts(example: Any) -> list[list[bytes]]:
    """The documents of each text, one of which is replaced by bytes that are in no text."""
    found = [example.documents(example.split_paragraphs(name)[0]) for name in example.WEIGHTS]
    noise = np.random.default_rng(0).integers(128, 256, example.ROW_LENGTH - 2, dtype=np.uint8)
    found[0][POISON] = noise.tobytes()
    return found


def dataset_of(
    example: Any, texts: list[list[bytes]], keep: Callable[[bytes], bool] | None = None
) -> Any:
    """Return the batches of the example: two strings, shuffled, mixed and packed into rows."""
    sources = [
        gm.MapDataset.source(documents).seed(SEED + number).shuffle().repeat()
        for number, documents in enumerate(texts)
    ]
    mixed = gm.MapDataset.mix(sources, weights=list(example.WEIGHTS.values()))
    if keep is not None:
        mixed = mixed.filter(keep)
    return example.pack(mixed, SEED).batch(BATCH_SIZE, drop_remainder=True)


def train(example: Any, training: Any, batches: Iterator[Any], num_steps: int) -> list[float]:
    steps = islice(batches, num_steps)
    return [float(example.train_step(*training, batch)[0]) for batch in steps]


def test_a_document_is_found_by_the_loss_and_left_out(
    example: Any, texts: list[list[bytes]], tmp_path: Path
):
    dataset, run = dataset_of(example, texts), tmp_path / "run"
    keep_all = ocp.CheckpointManagerOptions(max_to_keep=None)
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=keep_all) as checkpoints:
        training, losses = example.make_training(0), list[float]()
        with gm.feed(dataset) as batches:
            batches.keep_ledger(run)
            for step in range(0, NUM_STEPS, SAVE_EVERY):
                example.save(checkpoints, step, training, batches)
                losses += train(example, training, batches, SAVE_EVERY)
        checkpoints.wait_until_finished()

        # The step whose loss is above that of the step before.
        spike = 1 + int(np.argmax(np.diff(losses)))
        assert losses[spike] > losses[spike - 1] + 0.2

        # Back to the checkpoint before it. Which document of the batch has the greatest loss?
        for step in checkpoints.all_steps():
            if step > spike:
                checkpoints.delete(step)
        training = example.make_training(0)
        batches = gm.feed(dataset)
        first = example.restore(checkpoints, training, batches)
        with dataset.from_step(spike) as suspected:
            batch = next(suspected)
            rows = suspected.provenance().rows
        (origin,) = {rows[row][segment] for row, segment in [_worst(example, training, batch)]}
        assert (origin.source_number, origin.index) == (0, POISON)

        # Leave it out, and resume.
        batches.keep_ledger(run)
        batches.exclude(records=[origin])
        resumed = train(example, training, batches, NUM_STEPS - first)
        batches.close()

        # The same from that step on, in a program that never had the document.
        poison = texts[0][POISON]
        training = example.make_training(0)
        with iter(dataset) as other:
            assert example.restore(checkpoints, training, other) == first
    with iter(dataset_of(example, texts, lambda document: document != poison)) as clean:
        expected = train(example, training, islice(clean, first, None), NUM_STEPS - first)

    assert resumed == expected
    assert resumed[spike - first] < losses[spike] - 0.2
    (path,) = find_ledgers(run)
    assert read_ledger(path).num_replaced == NUM_STEPS - first


def _worst(example: Any, training: Any, batch: Any) -> tuple[int, int]:
    """Return the row and the segment of the document with the greatest loss."""
    model, _ = training
    losses = np.asarray(example.losses_of(model, batch))
    has_target = np.asarray(batch["targets"]) != example.PADDING
    segments = np.asarray(batch["segments"])
    means = {
        (row, segment - 1): losses[row][has_target[row] & (segments[row] == segment)].mean()
        for row in range(len(segments))
        for segment in range(1, segments[row].max() + 1)
    }
    return max(means, key=lambda where: means[where])
