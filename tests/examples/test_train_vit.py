"""The vision transformer: what it is fed, and that a killed training resumes exactly."""

import json
import signal
import sys
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as grain
from gristmill.transforms import DecodeImage
from tests.faults.processes import until
from tests.faults.scripts import Script, run_command

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_vit.py"
EPOCHS, SAVE_EVERY, NUM_STEPS = 1, 4, 13
"""An epoch of 800 images, in batches of 64."""

# Runs the example, and waits before a certain loss is written.
RUN = r"""
import os, runpy, sys, threading

sys.argv = {arguments!r}
left = {num_losses}


def hook(event, details):
    global left
    if event == "open" and str(details[0]) == {losses!r}:
        if left == 0:
            os.write(1, b"waiting\n")
            threading.Event().wait()  # until it is killed
        left -= 1


sys.addaudithook(hook)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def example() -> Any:
    spec = spec_from_file_location("train_vit", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_images_of_any_shape_become_squares_of_one_size(example: Any):
    prepare = example.Resize(example.SIZE + 8)
    for shape in [(64, 80, 3), (200, 20, 3), (10, 300, 3), (56, 56, 3)]:
        image = np.zeros(shape, np.uint8)
        square = prepare.map({"image": image, "label": 1})
        assert square["image"].shape == (example.SIZE + 8, example.SIZE + 8, 3)
        cut = example.CutMiddle().map(square)
        assert cut["image"].shape == (example.SIZE, example.SIZE, 3)
        augmented = example.Augment().random_map(square, np.random.default_rng(0))
        assert augmented["image"].shape == (example.SIZE, example.SIZE, 3)
        assert augmented["label"] == 1


def test_a_fifth_of_each_class_is_kept_for_evaluation(example: Any, tmp_path: Path):
    example.draw_shapes(tmp_path, seed=3)
    source = grain.sources.ImageFolderSource(tmp_path)
    assert source.classes == example.SHAPES
    train, test = grain.split(source, [0.8, 0.2], seed=3, stratify="label")
    labels = [np.bincount([record["label"] for record in part]) for part in (train, test)]
    assert labels[0].tolist() == [160] * 5
    assert labels[1].tolist() == [40] * 5
    assert DecodeImage().map(train[0])["image"].shape == (64, 80, 3)


def start(tmp_path: Path, folder: Path, num_losses: int) -> Script:
    """Start the example, which waits before it writes a loss after `num_losses`."""
    losses = str(folder / "losses")
    folder.mkdir(exist_ok=True)
    arguments = [
        *(str(EXAMPLE), "--epochs", str(EPOCHS), "--save-every", str(SAVE_EVERY)),
        *("--checkpoints", str(folder / "checkpoints"), "--losses", losses),
    ]
    program = RUN.format(arguments=arguments, losses=losses, num_losses=num_losses)
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return Script(program, tmp_path, name=f"{folder.name}.py", env=environment)


def output_of(program: Script) -> str:
    """Return what a program prints, however long it takes from one line to the next."""
    with closing(program):
        lines = [program.read_line()]
        while "accuracy" not in lines[-1]:
            lines.append(program.read_line())
        done = program.finish()
    assert done.code == 0, done.err
    return "\n".join(lines) + done.out


def losses_in(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "losses").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


def test_a_killed_training_has_the_losses_of_one_that_was_not(tmp_path: Path):
    output = output_of(start(tmp_path, tmp_path / "whole", -1))
    assert "accuracy on images that were kept for evaluation: 0." in output
    assert "Your code waited for data for" in output
    whole = losses_in(tmp_path / "whole")
    assert [step for step, _ in whole] == list(range(1, NUM_STEPS + 1))

    with closing(start(tmp_path, tmp_path / "killed", 6)) as killed:
        while killed.read_line() != "waiting":
            pass
        until((tmp_path / "killed/checkpoints/4").is_dir, "the last checkpoint is complete")
        killed.send(signal.SIGKILL)
        killed.wait()
    assert "resuming after step 4" in output_of(start(tmp_path, tmp_path / "killed", -1))
    assert losses_in(tmp_path / "killed") == whole[:6] + whole[4:]


def test_a_folder_that_does_not_exist_is_refused_by_the_name_of_the_flag():
    done = run_command(sys.executable, str(EXAMPLE), "--data", "missing")
    assert done.code == 2
    assert "--data must be a folder, got 'missing'" in done.err
