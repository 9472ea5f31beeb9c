"""Types flow through the public API: what pyright infers for a small program."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gristmill as gm
from gristmill import experimental


class Length(gm.Map):
    def map(self, element: str) -> int:
        return len(element)


class Words(gm.FlatMap):
    max_fan_out = 4

    def flat_map(self, element: str) -> list[str]:
        return element.split()


class Squares(gm.MapDataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: Any) -> Any:
        return index * index


def read_image(index: int) -> NDArray[np.uint8]:
    return np.full((28, 28), index, np.uint8)


def middle(elements: Sequence[int]) -> int:
    return elements[len(elements) // 2]


def count(ds: gm.MapDataset[int], unit: str) -> str:
    return f"{len(ds)} {unit}"


numbers = gm.MapDataset.source([1, 2])
reveal_type(numbers)  # MapDataset[int]
reveal_type(numbers.map(str))  # MapDataset[str]
reveal_type(numbers.map(lambda x: x / 2))  # MapDataset[float]
reveal_type(numbers.map(str).map(Length()))  # MapDataset[int]
reveal_type(numbers.map_with_index(lambda i, x: (i, x)))  # MapDataset[tuple[int, int]]
reveal_type(numbers.random_map(lambda x, rng: rng.random(), seed=1))  # MapDataset[float]
reveal_type(numbers.filter(lambda x: x % 2))  # MapDataset[int]
reveal_type(numbers.seed(1).shuffle().repeat(2))  # MapDataset[int]
reveal_type(numbers.pipe(count, unit="numbers"))  # str
reveal_type(numbers.apply(gm.Batch(2)))  # MapDataset[Any]

reveal_type(numbers[0])  # int | None
reveal_type(numbers[1:])  # MapDataset[int]
reveal_type(numbers[[1, 0]])  # MapDataset[int]
reveal_type(len(numbers))  # int
reveal_type([number for number in numbers])  # list[int]
reveal_type(iter(numbers))  # DatasetIterator[int]

reveal_type(numbers.batch(2))  # MapDataset[NDArray[Any]]
reveal_type(numbers.map(str).batch(2))  # MapDataset[NDArray[Any]]
reveal_type(numbers.map(read_image).batch(2))  # MapDataset[NDArray[Any]]
records = numbers.map(lambda x: {"image": read_image(x), "label": x})
reveal_type(records.batch(2))  # MapDataset[dict[str, NDArray[Any]]]
pairs = numbers.map(lambda x: (read_image(x), x))
reveal_type(pairs.batch(2))  # MapDataset[tuple[NDArray[Any], ...]]
reveal_type(numbers.batch(2, batch_fn=middle))  # MapDataset[int]
reveal_type(gm.MapDataset.source([["a"], ["b"]]).batch(2))  # MapDataset[Any]
reveal_type(gm.from_torch([1, 2]).batch(2))  # MapDataset[Any]

stream = numbers.to_iter_dataset()
reveal_type(stream)  # IterDataset[int]
reveal_type(stream.map(str).filter(str.isalpha))  # IterDataset[str]
reveal_type(stream.map(str).map(Length()))  # IterDataset[int]
reveal_type(stream.map_with_index(lambda i, x: (i, x)))  # IterDataset[tuple[int, int]]
reveal_type(stream.map(read_image).batch(2))  # IterDataset[NDArray[Any]]
reveal_type(stream.map(lambda x: {"x": x}).batch(2))  # IterDataset[dict[str, NDArray[Any]]]
reveal_type(stream.batch(2, batch_fn=middle))  # IterDataset[int]
reveal_type(stream.mp_prefetch(gm.MultiprocessingOptions(num_workers=2)))  # IterDataset[int]
reveal_type(next(iter(stream)))  # int
with iter(stream) as iterator:
    reveal_type(iterator)  # DatasetIterator[int]

reveal_type(Squares().map(str))  # MapDataset[str]
reveal_type(gm.MapDataset.mix([numbers, numbers.map(str)]))  # MapDataset[int | str]
reveal_type(gm.MapDataset.concatenate([numbers, numbers]))  # MapDataset[int]
reveal_type(experimental.ZipMapDataset([numbers, numbers])[0])  # tuple[int, ...] | None
reveal_type(experimental.LimitIterDataset(stream, 1))  # LimitIterDataset[int]
reveal_type(list(experimental.FlatMapIterDataset(stream.map(str), Words())))  # list[str]
reveal_type(experimental.apply_transformations(stream, gm.Batch(2)))  # IterDataset[Any]

reveal_type(gm.load([1, 2]))  # DataLoader
reveal_type(gm.load([1, 2]).read_options)  # ReadOptions
reveal_type(iter(gm.load([1, 2])).get_state())  # bytes
reveal_type(gm.feed(numbers.batch(2), prefetch=1, remainder="pad"))  # FeedIterator
"""


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run pyright on the program, outside of this project and its settings."""
    file = tmp_path_factory.mktemp("types") / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, file],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=file.parent,
    )
    return json.loads(done.stdout)["generalDiagnostics"]


def test_pyright_infers_the_types_that_the_program_expects(diagnostics: list[dict[str, Any]]):
    expected = {
        line: text.rpartition("  # ")[2]
        for line, text in enumerate(PROGRAM.splitlines())
        if "reveal_type(" in text
    }

    inferred = {
        one["range"]["start"]["line"]: _shorten(one["message"].partition(" is ")[2].strip('"'))
        for one in diagnostics
        if one["severity"] == "information"
    }

    assert inferred == expected


def test_pyright_has_no_objections_to_the_program(diagnostics: list[dict[str, Any]]):
    assert [one["message"] for one in diagnostics if one["severity"] != "information"] == []


def _shorten(inferred: str) -> str:
    """Write the types of arrays as users do."""
    return inferred.replace("ndarray[tuple[Any, ...], dtype[Any]]", "NDArray[Any]")
