import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"
MNIST = Path(os.environ.get("GRISTMILL_MNIST", PROJECT.parent / "shared" / "data" / "mnist"))
PEERS = [
    "PyTorch DataLoader", "TFDS as_numpy", "Grain DataLoader", "Grain MapDataset",
    "Hugging Face iter",
]  # fmt: skip
OURS = [
    "gristmill", "gristmill.from_torch", "gristmill.from_tfds", "gristmill DataLoader",
    "gristmill over MapDataset", "gristmill.from_huggingface",
]  # fmt: skip
LOOP = ["Python loop", "gristmill over records"]  # not in the notebook
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def run(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def copy_examples(folder: Path) -> Path:
    target = folder / "examples"
    shutil.copytree(EXAMPLES, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def accuracies(output: str) -> dict[str, str]:
    """Return the test accuracy of each row of the table."""
    row = r"^ (\S.*?) +[\d.]+ +[\d,]+ +(0\.\d+)(?: +[\d.]+x)? *$"
    return dict(re.findall(row, output, re.MULTILINE))


def is_a_picture(data: bytes) -> bool:
    with Image.open(io.BytesIO(data)) as image:
        colors = image.convert("RGB").getcolors(maxcolors=image.width * image.height)
        return image.format == "PNG" and min(image.size) > 200 and len(colors or ()) > 10


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_examples(tmp_path_factory.mktemp("five_ways"))


@pytest.fixture(scope="session")
def outcome(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run everything once, on the packaged sample."""
    return run(folder, "mnist_five_ways.py", "--work", "mnist_work", "--plot", "script.png")


def test_every_loader_reaches_the_same_accuracy(outcome: subprocess.CompletedProcess[str]):
    assert outcome.returncode == 0, outcome.stderr
    found = accuracies(outcome.stdout)
    assert sorted(found) == sorted(PEERS + OURS + LOOP)
    assert len(set(found.values())) == 1
    assert f"Test accuracy {found['gristmill']} with every loader" in outcome.stdout


def test_ours_are_compared_with_their_peers(outcome: subprocess.CompletedProcess[str]):
    compared = re.findall(r"^ (\S.*?) +\d.* [\d.]+x *$", outcome.stdout, re.MULTILINE)
    assert sorted(compared) == sorted({*OURS, LOOP[1]} - {"gristmill"})


def test_a_log_holds_no_bar_and_nothing_of_the_libraries(
    outcome: subprocess.CompletedProcess[str],
):
    assert outcome.stderr == ""
    assert "\x1b" not in outcome.stdout
    assert "\r" not in outcome.stdout
    assert outcome.stdout.startswith("Sample of MNIST: 9,600 images to train, 2,000 to test")


def test_the_plot_is_a_picture(outcome: subprocess.CompletedProcess[str], folder: Path):
    assert "Plot: script.png" in outcome.stdout
    assert is_a_picture((folder / "script.png").read_bytes())


def test_the_notebook_runs_and_ends_with_one_accuracy_and_the_plot(folder: Path):
    shorten(folder / "mnist_five_ways.ipynb", num_images=1_300)
    ways = {"JUPYTER_RUNTIME_DIR": str(folder / "jupyter"), "IPYTHONDIR": str(folder / "ipython")}
    done = run(folder, "-c", EXECUTE, "mnist_five_ways.ipynb", "executed.ipynb", environment=ways)

    assert done.returncode == 0, done.stderr
    *before, comparison, agreement, image = outputs(folder / "executed.ipynb")
    assert not [output for several in before for output in several if "text" in output]  # quiet
    found = accuracies(re.sub(r"\x1b\[[\d;]*m", "", comparison[-1]["data"]["text/plain"]))
    assert sorted(found) == sorted(PEERS + OURS)
    assert len(set(found.values())) == 1
    assert agreement[-1]["data"]["text/plain"] == f"{{{found['gristmill']}}}"
    assert is_a_picture(base64.b64decode(image[-1]["data"]["image/png"]))


def shorten(notebook: Path, num_images: int) -> None:
    """Have a notebook learn from fewer images: what is shown is the same."""
    text = notebook.read_text(encoding="utf-8")
    load = "data = load_mnist(DATA)\\n"
    fewer = (
        "import dataclasses\\n",
        f"data = dataclasses.replace(data, train_images=data.train_images[:{num_images}], "
        f"train_labels=data.train_labels[:{num_images}])\\n",
    )
    assert text.count(f'"{load}"') == 1
    lines = ", ".join(f'"{line}"' for line in (load, *fewer))
    notebook.write_text(text.replace(f'"{load}"', lines), encoding="utf-8")


def outputs(notebook: Path) -> list[list[dict[str, Any]]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    for output in (output for several in found for output in several):
        for value in (output, output.get("data", {})):
            for key, lines in value.items():
                if isinstance(lines, list):  # nbformat stores strings by the line
                    value[key] = "".join(lines)
    return found


def test_the_notebook_is_stored_without_outputs():
    assert not any(outputs(EXAMPLES / "mnist_five_ways.ipynb"))


def test_workers_change_nothing_but_the_time(
    outcome: subprocess.CompletedProcess[str], folder: Path
):
    done = run(folder, "mnist_five_ways.py", "--only", "gristmill", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert accuracies(done.stdout) == {"gristmill": accuracies(outcome.stdout)["gristmill"]}
    assert is_a_picture((folder / "mnist_five_ways.png").read_bytes())  # where no other is named


def test_an_order_of_its_own_is_reported_and_is_the_exit_status(tmp_path: Path):
    folder = copy_examples(tmp_path)
    with (folder / "mnist" / "with_gristmill.py").open("a") as way:
        way.write("""
import dataclasses

forwards = contenders


def contenders(data, **options):
    images, labels = data.train_images[::-1], data.train_labels[::-1]
    other = forwards(dataclasses.replace(data, train_images=images, train_labels=labels), **options)
    return [*forwards(data, **options), dataclasses.replace(other[0], name="backwards")]
""")
    done = run(folder, "mnist_five_ways.py", "--only", "gristmill")
    assert done.returncode == 1
    assert done.stderr.startswith("The test accuracies differ")
    assert "with gristmill; 0." in done.stderr
    assert "with backwards." in done.stderr


def test_without_the_other_loaders_it_reports_how_to_install_them(tmp_path: Path):
    hide(tmp_path, "torch", "tensorflow_datasets", "tensorflow", "grain", "datasets", "matplotlib")
    done = run(
        tmp_path, str(EXAMPLES / "mnist_five_ways.py"), environment={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    remedy = '`pip install "gristmill[examples]"`, or `make examples` in a checkout.'
    assert (
        "Not compared: pytorch (needs torch), tfds (needs tensorflow_datasets, tensorflow), grain "
        f"(needs grain), huggingface (needs datasets). Install all of them with {remedy}"
    ) in done.stdout
    assert f"No plot, which needs matplotlib: {remedy}" in done.stdout
    assert list(accuracies(done.stdout)) == [*LOOP, "gristmill"]
    assert not (tmp_path / "mnist_five_ways.png").exists()


def test_without_jax_it_reports_how_to_install_it(tmp_path: Path):
    hide(tmp_path, "jax")
    done = run(
        tmp_path, str(EXAMPLES / "mnist_five_ways.py"), environment={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 2
    assert done.stderr.startswith('This needs jax: `pip install "gristmill[examples]"`')


def hide(folder: Path, *packages: str) -> None:
    """Make a folder that, on the path of Python, takes packages away."""
    lines = [f"sys.modules[{package!r}] = None" for package in packages]
    (folder / "sitecustomize.py").write_text("\n".join(["import sys", *lines]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "--epochs: must be an integer of at least 1, got '0'"),
        (["--workers", "-1"], "--workers: must be an integer of at least 0, got '-1'"),
        (["--only", "keras"], "--only: invalid choice: 'keras'"),
        (["--plot", "nowhere/a.png"], "--plot: must be a file in a writable folder"),
        (["--data", "nowhere"], "The folder 'nowhere' does not exist."),
    ],
    ids=["epochs", "workers", "only", "plot", "data"],
)
def test_wrong_usage_is_explained(tmp_path: Path, arguments: list[str], message: str):
    done = run(tmp_path, str(EXAMPLES / "mnist_five_ways.py"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(
    not MNIST.is_dir(), reason=f"all of MNIST is not in {MNIST}; GRISTMILL_MNIST says where it is"
)
def test_one_epoch_of_all_of_mnist_ends_where_the_tutorials_do(tmp_path: Path):
    script = str(EXAMPLES / "mnist_five_ways.py")
    ways = ["--only", "pytorch", "--only", "gristmill"]
    done = run(tmp_path, script, "--data", str(MNIST), *ways)
    assert done.returncode == 0, done.stderr
    found = accuracies(done.stdout)
    assert list(found) == ["PyTorch DataLoader", "gristmill.from_torch", "gristmill"]
    assert len(set(found.values())) == 1
    # The tutorial's 0.9168; the last digit depends on the instructions that the processor has.
    assert abs(float(found["gristmill"]) - 0.9168) < 0.001
