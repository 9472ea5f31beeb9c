"""Workers in a Jupyter notebook: functions and classes live in its cells."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.faults.processes import gone, until

DEFINITIONS = """
import dataclasses, os
import numpy as np
from gristmill import Batch, DataLoader, IndexSampler, Map

@dataclasses.dataclass
class Example:
    n: int
    pixels: np.ndarray

class Double(Map):
    def map(self, n):
        return Example(SCALE * n, np.full(3000, n))

SCALE = 2
cells_run = globals().get("cells_run", 0) + 1
"""

LOADING = """
def pick(example):
    return {"n": example.n, "mean": example.pixels.mean()}

def loader(*operations):
    return DataLoader(
        data_source=range(100),
        sampler=IndexSampler(100, num_epochs=1),
        operations=operations,
        worker_count=2,
    )
"""


def run_notebook(folder: Path, *cells: str) -> list[Any]:
    """Execute a notebook, and return the outputs of its cells."""
    cell: Any = nbformat.v4.new_code_cell
    notebook: Any = nbformat.v4.new_notebook(cells=[cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [one["outputs"] for one in notebook["cells"]]


def text_of(outputs: list[Any]) -> str:
    """Return what a cell printed."""
    return "".join(output.get("text", "") for output in outputs)


def test_functions_and_classes_of_cells_work_in_workers(tmp_path: Path):
    *_, batches, identity, state = run_notebook(
        tmp_path,
        DEFINITIONS,
        LOADING,
        "batches = list(loader(Double(), pick, Batch(10)))\n"
        "print(len(batches), batches[3]['n'].tolist(), batches[3]['mean'][0])",
        "print({type(example) is Example for example in loader(Double())})",
        "print(cells_run, [os.getpid() in set(loader(lambda n: os.getpid()))])",
    )

    assert text_of(batches) == f"10 {list(range(60, 80, 2))} 30.0\n"
    assert text_of(identity) == "{True}\n"
    assert text_of(state) == "1 [False]\n"


def test_a_cell_that_is_changed_and_run_again_counts(tmp_path: Path):
    *_, outputs = run_notebook(
        tmp_path,
        DEFINITIONS,
        LOADING,
        "print(next(iter(loader(lambda n: SCALE * (n + 1)))))",
        "SCALE = 7",
        "print(next(iter(loader(lambda n: SCALE * (n + 1)))))",
    )

    assert text_of(outputs) == "7\n"


def test_an_exception_in_a_worker_shows_the_line_of_the_cell(tmp_path: Path):
    with pytest.raises(CellExecutionError) as caught:
        run_notebook(
            tmp_path,
            DEFINITIONS,
            LOADING,
            "class Odd(Exception):\n    pass\n\n"
            "def fail(n):\n"
            "    if n == 51:\n"
            "        raise Odd(f'record {n} is odd')\n"
            "    return n\n",
            "for element in loader(fail): pass",
        )

    assert caught.value.ename == "Odd"
    assert "record 51 is odd" in caught.value.evalue
    assert "raise Odd(f'record {n} is odd')" in caught.value.traceback


def test_workers_of_a_notebook_end_with_its_kernel(tmp_path: Path):
    *_, outputs = run_notebook(
        tmp_path,
        DEFINITIONS,
        LOADING,
        "import sys\n"
        "iterator = iter(loader(lambda n: os.getpid()))\n"
        "pids = {next(iterator) for _ in range(50)}\n"
        "print(*pids)",
    )

    until(gone(map(int, text_of(outputs).split())), "the workers are gone")
