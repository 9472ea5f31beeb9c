"""A worker that takes very long for a block, without a time limit: a log line, and nothing else."""

import ctypes
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, Map, ReadOptions
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.sources import ArraySource
from tests.faults.gates import Gate
from tests.policies import with_policy

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")

IMPATIENT = TuningPolicy(slow_task_s=0.05)


class Answer(logging.Handler):
    """Ends what hangs as soon as a log line matches a pattern."""

    def __init__(self, pattern: str, answer: Callable[[], object]) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._pattern = pattern
        self._answer = answer

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if re.search(self._pattern, line):
            self.lines.append(line)
            self._answer()


def lines_of(loader: DataLoader, pattern: str, answer: Callable[[], object]) -> list[str]:
    """Run a loader that hangs until `answer` is called; return the lines that match."""
    handler = Answer(pattern, answer)
    logger = logging.getLogger("gristmill")
    logger.addHandler(handler)
    try:
        with iter(with_policy(loader, IMPATIENT)) as iterator:
            assert len(list(iterator)) == 40
            assert iterator.stats().num_restarts == 0
    finally:
        logger.removeHandler(handler)
    return handler.lines


REMEDY = re.escape(
    ". If it hangs, set `block_timeout_s` in `WorkerOptions`: the block is then computed again by "
    "another worker."
)
SITE = r"added at .*conftest\.py:\d+"
RECORD_13 = re.escape("record 13 of the source (position 13 of the stream)")


def test_a_map_that_hangs_is_logged_with_its_record(make_loader: MakeLoader, tmp_path: Path):
    gate = Gate(tmp_path / "gate")

    def wait(element: int) -> int:
        if element == 13:
            gate.wait()
        return element

    lines = lines_of(make_loader(range(40), wait), RECORD_13, gate.open)

    expected = (
        rf"Worker [01] has been in one block for \d+ s: Map wait, {SITE}, on {RECORD_13}{REMEDY}"
    )
    assert re.fullmatch(expected, lines[0])


class Waits:
    """A source whose record 13 waits."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 13:
            self.gate.wait()
        return index


class WaitsForMany(Waits):
    """The same, but it is asked for many records at a time."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("num_threads", [0, 16])
@pytest.mark.parametrize("source_class", [Waits, WaitsForMany])
def test_a_source_that_hangs_is_logged(
    make_loader: MakeLoader, tmp_path: Path, source_class: type[Waits], num_threads: int
):
    gate = Gate(tmp_path / "gate")
    read = ReadOptions(num_threads=num_threads, prefetch_buffer_size=1)
    where = r"the elements from record \d+ .* to position \d+"
    records = RECORD_13 if source_class is Waits else f"({RECORD_13}|{where})"

    lines = lines_of(make_loader(source_class(gate), read_options=read), records, gate.open)

    step = rf"reading {source_class.__name__}\(.*\), {SITE}"
    expected = rf"Worker [01] has been in one block for \d+ s: {step}, on {records}{REMEDY}"
    assert re.fullmatch(expected, lines[0])


def test_a_batch_function_that_hangs_is_logged_with_its_records(
    make_loader: MakeLoader, tmp_path: Path
):
    gate = Gate(tmp_path / "gate")

    def collate(elements: Sequence[Any]) -> Any:
        if 13 in elements:
            gate.wait()
        return np.array(elements)

    loader = make_loader(range(200), Batch(5, batch_fn=collate))

    lines = lines_of(loader, "position 10 of the stream", gate.open)

    first = re.escape("the elements from record 10 of the source (position 10 of the stream)")
    assert re.search(rf"Batch\(5\).*, {SITE}, on {first} to position 14\. If it hangs", lines[0])


class HangsInColumns(Map):
    """A map of many elements at a time that hangs."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, elements: Any) -> Any:
        if 13 in elements["x"]:
            self.gate.wait()
        return elements


def test_a_map_of_columns_that_hangs_is_logged_with_its_records(
    make_loader: MakeLoader, tmp_path: Path
):
    gate = Gate(tmp_path / "gate")
    loader = make_loader(ArraySource({"x": np.arange(40)}), HangsInColumns(gate))

    lines = lines_of(loader, "HangsInColumns", gate.open)

    assert re.search(rf"HangsInColumns.*, {SITE}, on .*position 1", lines[0])


def test_c_code_that_holds_the_interpreter_lock_is_noticed_by_the_parent(
    make_loader: MakeLoader, tmp_path: Path
):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def hang(element: int) -> int:
        if element == 13:
            descriptor = os.open(pipe, os.O_RDWR)
            ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)
            os.close(descriptor)
        return element

    def answer() -> None:
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        os.write(descriptor, b"x")  # the worker has it open
        os.close(descriptor)

    lines = lines_of(make_loader(range(40), hang), "computing .*position", answer)

    where = r"(the records from )?record \d+ of the source \(position \d+ of the stream\)"
    step = rf"computing {where}( to position \d+)?"
    expected = rf"Worker [01] has been in one block for \d+ s: {step}{REMEDY}"
    assert re.fullmatch(expected, lines[0])
