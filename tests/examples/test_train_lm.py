"""The language model: what it is fed, and that a killed training ends as if it had not been."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROJECT = Path(__file__).parents[2]
if str(PROJECT) not in sys.path:  # makes `tests` importable however pytest was started
    sys.path.insert(0, str(PROJECT))

from tests.faults.processes import gone, kill_quietly, until  # noqa: E402
from tests.faults.scripts import Script  # noqa: E402

EXAMPLE = PROJECT / "examples" / "train_lm.py"
TEXTS = EXAMPLE.parent / "texts"
SAVES_EVERY = 4

# Runs the example until it has noted as many losses, and is about to note another.
RUN = r"""
import os, runpy, sys, threading

sys.argv = {arguments!r}
left = {num_losses}


def hook(event, details):
    global left
    if event == "open" and str(details[0]) == {losses!r}:
        if left == 0:
            os.write(1, b"at the moment\n")
            threading.Event().wait()  # until it is killed
        left -= 1


sys.addaudithook(hook)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def example() -> Any:
    spec = spec_from_file_location("train_lm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(example: Any) -> list[dict[str, Any]]:
    """Return the rows that an epoch of the shorter source lasts for."""
    dataset = example.make_dataset(batch_size=1, seed=3, num_epochs=1)
    return [{name: leaf[0] for name, leaf in batch.items()} for batch in dataset]


def packed_in(row: dict[str, Any]) -> list[bytes]:
    """Return the documents of a row."""
    numbers = range(1, row["segments"].max() + 1)
    return [bytes(row["tokens"][row["segments"] == n].astype(np.uint8)) for n in numbers]


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        (
            "alice.txt",
            "ALICE'S ADVENTURES IN WONDERLAND\n\nLewis Carroll\n\nCHAP",
            "THE END\n",
        ),
        ("constitution.txt", "We the People of the United States, in Order", "our Names,\n"),
    ],
    ids=["alice", "constitution"],
)
def test_a_text_is_the_authors_alone(name: str, begin: str, end: str):
    data = (TEXTS / name).read_bytes()
    text = data.decode("ascii")
    assert text.startswith(begin)
    assert text.endswith(end)
    assert not {"\r", "\t", "\0", "\1", "["} & set(text)
    assert "\n\n\n" not in text
    assert not {"gutenberg", "ebook", "license", "edition"} & set(text.lower().split())


def test_the_documents_are_the_paragraphs_of_a_text(example: Any):
    for name in example.WEIGHTS:
        documents = example.documents(example.paragraphs(name))
        assert max(map(len, documents)) <= example.ROW_LENGTH
        whole = b"".join(documents).replace(b"\1\1", b"\n\n").strip(b"\1")
        assert whole + b"\n" == (TEXTS / name).read_bytes()


def test_every_document_of_an_epoch_is_packed_once_and_whole(
    example: Any, rows: list[dict[str, Any]]
):
    alice, constitution = (
        Counter(example.documents(example.split_paragraphs(name)[0])) for name in example.WEIGHTS
    )
    packed = Counter(document for row in rows for document in packed_in(row))

    # The mixture ends with the text that ends first, at the weights that were asked for.
    shares = list(example.WEIGHTS.values())
    assert packed <= alice + constitution
    ended = [text for text in (alice, constitution) if text <= packed]
    assert len(ended) == 1
    num_alice = sum((packed & alice).values())
    assert num_alice / packed.total() == pytest.approx(shares[0], abs=0.01)


def test_each_paragraph_is_either_trained_on_or_held_out(example: Any):
    for name in example.WEIGHTS:
        train, held_out = example.split_paragraphs(name)
        assert sorted([*train, *held_out]) == sorted(example.paragraphs(name))
        assert len(held_out) == pytest.approx(0.05 * (len(train) + len(held_out)), abs=1)


def test_the_held_out_paragraphs_are_evaluated_whole(example: Any):
    for name in example.WEIGHTS:
        batches = example.make_evaluation(name, batch_size=3)
        rows = [
            {name: leaf[row] for name, leaf in batch.items()}
            for batch in batches
            for row in range(len(batch["tokens"]))
        ]
        packed = Counter(document for row in rows for document in packed_in(row))
        assert packed == Counter(example.documents(example.split_paragraphs(name)[1]))


def test_the_loss_of_an_evaluation_is_the_mean_over_all_bytes(example: Any):
    model, _ = example.make_training(0)
    mesh = example.Mesh(example.jax.devices(), ("data",))
    dataset = example.make_evaluation("constitution.txt", batch_size=4)
    losses, has_target = list[Any](), list[Any]()
    for batch in dataset:
        losses += [np.asarray(example.losses_of(model, batch)).ravel()]
        has_target += [batch["targets"].ravel() != 0]
    expected = np.concatenate(losses)[np.concatenate(has_target)].mean()
    assert len(losses[-1]) < len(losses[0])  # the last batch is padded
    assert example.evaluate(model, dataset, mesh) == pytest.approx(float(expected), rel=1e-4)


def test_positions_and_segments_distinguish_the_documents_of_a_row(rows: list[dict[str, Any]]):
    assert max(row["segments"].max() for row in rows) > 2  # else nothing is packed
    for row in rows:
        is_padding = row["tokens"] == 0
        np.testing.assert_array_equal(row["segments"] == 0, is_padding)
        for number in range(1, row["segments"].max() + 1):
            (places,) = np.nonzero(row["segments"] == number)
            np.testing.assert_array_equal(places, places[0] + np.arange(len(places)))
            np.testing.assert_array_equal(row["positions"][places], np.arange(len(places)))


def test_a_target_is_the_next_token_of_the_same_document(rows: list[dict[str, Any]]):
    for row in rows:
        tokens, segments, targets = (row[name] for name in ("tokens", "segments", "targets"))
        for place, (here, after) in enumerate(pairwise([*segments, 0])):
            expected = tokens[place + 1] if here == after != 0 else 0
            assert targets[place] == expected


def test_little_of_a_row_is_padding(rows: list[dict[str, Any]]):
    full = rows[: len(rows) // 2]  # the last bins are given as they are when the data ends
    assert np.mean([row["segments"] == 0 for row in full]) < 0.1


def test_no_token_sees_another_document_or_what_comes_after_it(example: Any):
    jit = example.nnx.jit
    model, _ = jit(example.make_training, static_argnums=0)(0)
    give_logits = jit(example.Transformer.__call__)
    length = example.ROW_LENGTH
    tokens = np.random.default_rng(0).integers(32, 127, (1, length))
    cut, changed = length // 2, length // 2 + 9
    segments = np.where(np.arange(length) < cut, 1, 2)[None]
    positions = np.where(segments == 1, np.arange(length), np.arange(length) - cut)
    before = np.asarray(give_logits(model, tokens, segments, positions))

    tokens[0, 3] = 9  # in the first document
    after = np.asarray(give_logits(model, tokens, segments, positions))
    differs = np.any(before != after, axis=-1)[0]
    assert differs[3:cut].all()
    assert not differs[:3].any()
    assert not differs[cut:].any()

    tokens[0, changed] = 9  # in the second
    last = np.asarray(give_logits(model, tokens, segments, positions))
    differs = np.any(after != last, axis=-1)[0]
    assert differs[changed:].all()
    assert not differs[:changed].any()


Start = Callable[..., Script]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts the example; what is left of it is killed after the test."""
    started: list[Script] = []

    def run(
        folder: Path,
        *,
        num_devices: int,
        num_steps: int,
        num_workers: int = 0,
        num_losses: int = -1,
    ) -> Script:
        folder.mkdir(exist_ok=True)
        losses = str(folder / "losses")
        arguments = [
            str(EXAMPLE), "--checkpoints", str(folder / "checkpoints"), "--losses", losses,
            "--steps", str(num_steps), "--save-every", str(SAVES_EVERY),
            "--batch-size", str(max(2, num_devices)),
            "--workers", str(num_workers),
        ]  # fmt: skip
        environment = {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
            # What one has compiled the next need not: that is most of its time.
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        text = RUN.format(arguments=arguments, losses=losses, num_losses=num_losses)
        one = Script(text, tmp_path, name=f"run_{len(started)}.py", env=environment)
        started.append(one)
        return one

    yield run
    for one in started:
        kill_quietly([one.pid, *one.family])
        one.close()


@pytest.mark.parametrize(
    ("num_devices", "num_steps", "moments"),
    [(1, 20, [(7, 0), (18, 1)]), (8, 8, [(7, 0)])],
    ids=["one device, killed twice", "eight devices, killed once"],
)
def test_a_training_that_is_killed_has_the_losses_of_one_that_is_not(
    example: Any,
    start: Start,
    tmp_path: Path,
    num_devices: int,
    num_steps: int,
    moments: list[tuple[int, int]],
):
    shape = {"num_devices": num_devices, "num_steps": num_steps}
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    out = lines_of(start(quiet, **shape))
    assert out[0] == f"Devices: {num_devices}, steps: 1 to {num_steps}"
    assert any(line.startswith("The President ") for line in out)
    pattern = r"loss on held-out paragraphs of (\S+): (\d\.\d{3})"
    found = re.findall(pattern, "\n".join(out))
    assert [name for name, _ in found] == list(example.WEIGHTS)
    assert all(0 < float(loss) < np.log(256) for _, loss in found)
    expected = losses_in(quiet)
    assert [step for step, _ in expected] == list(range(1, num_steps + 1))
    values = [float.fromhex(loss) for _, loss in expected]
    assert values[-1] < values[0] - 0.2

    last, written = 0, list[tuple[int, str]]()
    for moment, num_workers in moments:  # killed before the loss of that step is noted
        run = start(killed, **shape, num_workers=num_workers, num_losses=moment - 1 - last)
        while run.read_line() != "at the moment":
            pass
        written += expected[last : moment - 1]
        assert losses_in(killed) == written  # replayed, it is what came before
        last = (moment - 1) // SAVES_EVERY * SAVES_EVERY
        until((killed / "checkpoints" / str(last)).is_dir, "the last checkpoint is whole")
        run.look()
        assert len(run.workers) == num_workers
        run.kill()
        until(gone(run.family), "its workers are gone")

    out = lines_of(start(killed, **shape, num_workers=1))
    assert out[0] == f"Devices: {num_devices}, steps: {last + 1} to {num_steps}"
    assert losses_in(killed) == written + expected[last:]


def lines_of(run: Script) -> list[str]:
    """Return what a run prints, line by line up to its explanation, however long they all take."""
    lines = [run.read_line()]
    while not lines[-1].startswith("Your code waited for data for"):
        lines.append(run.read_line())
    done = run.finish()
    assert done.code == 0, done.err
    return lines


def losses_in(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "losses").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]
