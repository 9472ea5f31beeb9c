import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gristmill._cli.main import main as gristmill
from gristmill._demo import train as _train


def main(arguments: Sequence[str]) -> int:
    return gristmill(["demo", *arguments])


def test_one_epoch_prints_its_accuracies_and_a_summary(
    mnist_directory: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["--data", str(mnist_directory), "--epochs", "1", "--batch-size", "16"]

    assert main(arguments) == 0

    captured = capsys.readouterr()
    assert f"MNIST in {mnist_directory}: 60 images to train, 20 to test" in captured.out
    epochs = re.findall(
        r"^epoch 1/1   train accuracy [01]\.\d{4}   test accuracy [01]\.\d{4} +[\d,]+ images/s$",
        captured.out,
        re.MULTILINE,
    )
    assert len(epochs) == 1
    assert re.search(r"Test accuracy +[01]\.\d{4}", captured.out)
    assert re.search(r"Training +60 images in \d+\.\d s", captured.out)
    assert re.search(r"Loading +\d+\.\d\d s of one core, \d+\.\d%", captured.out)
    assert captured.err == ""


def test_a_log_gets_one_line_per_epoch_and_no_control_codes(
    mnist_directory: Path, capsys: pytest.CaptureFixture[str]
):
    main(["--data", str(mnist_directory), "--epochs", "3", "--in-order"])
    out = capsys.readouterr().out
    assert [line[:9] for line in out.splitlines() if line.startswith("epoch")] == [
        "epoch 1/3", "epoch 2/3", "epoch 3/3"
    ]  # fmt: skip
    assert "\x1b" not in out
    assert "\r" not in out


def test_the_same_seed_yields_the_same_accuracies(
    mnist_directory: Path, capsys: pytest.CaptureFixture[str]
):
    accuracies: list[list[str]] = []
    for _ in range(2):
        main(["--data", str(mnist_directory), "--epochs", "2", "--seed", "4"])
        accuracies.append(re.findall(r"accuracy ([\d.]+)", capsys.readouterr().out))
    assert accuracies[0] == accuracies[1]
    assert len(accuracies[0]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "--epochs: must be an integer of at least 1, got '0'"),
        (["--batch-size", "many"], "--batch-size: must be an integer of at least 1"),
        (["--step-size", "-1"], "--step-size: must be a number above 0, got '-1'"),
        (["--step-size", "nan"], "--step-size: must be a number above 0, got 'nan'"),
        (["--seed", "4294967296"], "--seed: must be an integer from 0 to 4294967295"),
        (["--shuffle", "--in-order"], "--in-order: not allowed with argument --shuffle"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for flag in (
        "--data", "--epochs", "--batch-size", "--step-size", "--seed", "--shuffle", "--in-order"
    ):  # fmt: skip
        assert flag in out


def test_bad_data_ends_with_an_error_that_names_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["--data", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("gristmill demo: Neither train-images-idx3-ubyte nor")
    assert "Leave `--data` out" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("package", ["jax", "rich"])
def test_a_missing_package_is_named_with_the_remedy(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, package, None)  # makes the import fail
    assert main(["--epochs", "1"]) == 2
    err = capsys.readouterr().err
    assert f"The demo needs the package {package!r}" in err
    assert '`pip install "gristmill[demo]"`' in err


def test_an_interrupt_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_train, "train", interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"
