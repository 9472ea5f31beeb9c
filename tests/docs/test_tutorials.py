"""The tutorials run as notebooks, from their files and without a network."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
COLAB = "https://colab.research.google.com/github/gristmill-data/gristmill/blob/main/docs/tutorials"
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def cells_of(notebook: Path, kind: str) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def printed_by(notebook: Path) -> str:
    """Return what the cells of an executed notebook printed."""
    outputs = [output for cell in cells_of(notebook, "code") for output in cell["outputs"]]
    return "".join(line for output in outputs for line in output.get("text", []))


def execute(name: str, folder: Path) -> str:
    """Execute a tutorial in a folder, and return what it printed."""
    executed = folder / "executed.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(ROOT / "docs/tutorials" / name), str(executed)],
        cwd=folder,
        env={
            **os.environ,
            "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
            "IPYTHONDIR": str(folder / "ipython"),
            "HF_DATASETS_CACHE": str(folder / "datasets"),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return printed_by(executed)


def test_the_data_loaders_train_to_one_accuracy(tmp_path: Path):
    printed = execute("data_loaders_on_cpu.ipynb", tmp_path)
    *equal, shuffled = re.findall(r"test accuracy (0\.\d+)", printed)
    assert len(equal) == 4
    assert len(set(equal)) == 1
    assert float(equal[0]) > 0.8
    assert float(shuffled) > float(equal[0])  # of three epochs
    assert printed.count("waited for data") == 5


def test_the_guide_shows_a_sampler_and_a_checkpoint(tmp_path: Path):
    printed = execute("data_loader_guide.ipynb", tmp_path)
    assert printed.count("RecordMetadata(index=") == 10
    assert re.search(r"process_0-of-1\.json has \d{2,3} bytes", printed)


def test_a_network_is_trained_resumed_and_evaluated(tmp_path: Path):
    printed = execute("pytorch_to_nnx.ipynb", tmp_path)
    assert "192 steps of 192" in printed
    assert "Your code waited for data for" in printed
    (accuracy,) = re.findall(r"test accuracy (0\.\d+)", printed)
    assert float(accuracy) > 0.8


@pytest.mark.parametrize("notebook", TUTORIALS, ids=lambda notebook: notebook.stem)
def test_a_tutorial_is_stored_without_outputs_and_opens_in_colab(notebook: Path):
    for cell in cells_of(notebook, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    first = "".join(cells_of(notebook, "markdown")[0]["source"])
    assert f"({COLAB}/{notebook.name})" in first
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert f"({COLAB}/{notebook.name})" in index
    assert f"\ntutorials/{notebook.stem}\n" in index


@pytest.mark.parametrize("notebook", TUTORIALS, ids=lambda notebook: notebook.stem)
def test_links_of_a_tutorial_to_files_lead_somewhere(notebook: Path):
    for cell in cells_of(notebook, "markdown"):
        for target in re.findall(r"\]\(([^)#]+)\)", "".join(cell["source"])):
            if not target.startswith("http"):
                assert (notebook.parent / target).exists(), target
