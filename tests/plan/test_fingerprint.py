import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import MapDataset
from gristmill._plan.fingerprint import fingerprint, fingerprint_steps
from gristmill.errors import PlanError
from gristmill.sources import ArraySource, JsonLinesSource

SCALE = 2


def of(dataset: Any) -> str:
    return fingerprint(dataset._plan_node)


def scaled(x: int) -> int:
    return x * SCALE


def by_helper(x: int) -> int:
    return scaled(x)


class Add:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, x: int) -> int:
        return x + self.number


def test_equal_plans_have_equal_fingerprints_whatever_their_lines() -> None:
    first = MapDataset.range(9).map(lambda x: x + 1).batch(2)
    second = MapDataset.range(9).map(lambda x: x + 1).batch(2)
    assert of(first) == of(second)


@pytest.mark.parametrize(
    "other",
    [
        lambda: MapDataset.range(10).map(Add(1)),
        lambda: MapDataset.range(9).map(Add(2)),
        lambda: MapDataset.range(9).map(lambda x: x + 1),
        lambda: MapDataset.range(9).map(Add(1)).batch(2),
        lambda: MapDataset.range(9).map(partial(Add(1))),
        lambda: MapDataset.range(9)[1:].map(Add(1)),
    ],
)
def test_another_source_function_or_step_is_another_fingerprint(other: Any) -> None:
    assert of(other()) != of(MapDataset.range(9).map(Add(1)))


def test_a_global_that_a_function_refers_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(MapDataset.range(3).map(by_helper))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3)
    assert of(MapDataset.range(3).map(by_helper)) != before


def test_a_closure_counts() -> None:
    def make(number: int) -> Any:
        return MapDataset.range(3).map(lambda x: x + number)

    assert of(make(1)) == of(make(1))
    assert of(make(1)) != of(make(2))


def test_arrays_count_by_content_and_mapped_ones_by_file(tmp_path: Path) -> None:
    values = np.arange(6)
    assert of(MapDataset.source(values)) == of(MapDataset.source(values.copy()))
    assert of(MapDataset.source(values)) != of(MapDataset.source(values + 1))
    np.save(tmp_path / "x.npy", values)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    first = of(MapDataset.source(ArraySource(mapped)))
    assert first == of(MapDataset.source(ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"))))
    assert first != of(MapDataset.source(ArraySource(mapped[1:])))


def test_reading_a_source_does_not_change_the_fingerprint_and_a_new_file_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    source = JsonLinesSource(path)
    before = of(MapDataset.source(source).map(str))
    assert len(source) == 2
    assert source[1] == {"a": 2}
    assert of(MapDataset.source(source).map(str)) == before
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert of(MapDataset.source(JsonLinesSource(path)).map(str)) != before


PROGRAM = """
import numpy as np
from gristmill import MapDataset
from gristmill._plan.fingerprint import fingerprint

NAMES = {"a", "b", "c"}

class Scale:
    factor = 2.5
    def __init__(self, names): self.names = names
    def __call__(self, x): return np.float32(x) * self.factor if str(x) not in NAMES else self.names

plan = MapDataset.source([1, "a", 2.5]).map(Scale(["x", "y"])).filter(lambda x: x != "x")
print(fingerprint(plan._plan_node))
"""


def test_another_process_computes_the_same_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, str(path)]
    found = {subprocess.run(command, capture_output=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1
    path.write_text(PROGRAM.replace("2.5\n", "3.5\n", 1))
    assert subprocess.run(command, capture_output=True, check=True).stdout not in found


def test_an_object_whose_state_cannot_be_read_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(PlanError, match=r"cannot find out whether .*lock.*`__getstate__`"):
        of(MapDataset.range(3).map(lambda x: (x, lock)))


def test_the_code_of_each_step_of_a_stream_that_calls_a_function_has_a_hash() -> None:
    def hashes(add: int) -> list[tuple[str, str]]:
        stream = MapDataset.range(9).to_iter_dataset()
        stream = stream.map_with_index(lambda i, x: x + add).scan(lambda c, x: (c, x + add), 0)
        return fingerprint_steps(stream.window(3, batch_fn=lambda x: len(x) + add)._plan_node)

    one, other = hashes(1), hashes(2)
    assert [len(code) for _, code in one] == [32, 32, 32]
    assert all(before != after for before, after in zip(one, other, strict=True))
