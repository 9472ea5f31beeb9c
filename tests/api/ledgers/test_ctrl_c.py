"""Ctrl-C at any line of `next` neither loses nor repeats an element, or its line in a ledger."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill import experimental
from gristmill._api.dataset import iterator as dataset_iterator
from gristmill._api.experimental import thread_prefetch
from gristmill._api.feeding import iterator as feeding_iterator
from gristmill._api.ledgers import keeper
from gristmill._api.loader import iterator as loader_iterator
from gristmill._base.threads import background, resumable_puller
from gristmill._checkpoint import ledger_file
from gristmill._engine import run, stream

NUM_ELEMENTS = 3
WATCHED = {
    module.__file__
    for module in (
        *(dataset_iterator, feeding_iterator, loader_iterator, thread_prefetch, keeper),
        *(ledger_file, resumable_puller, background, run, stream),
    )
}


def loader() -> Any:
    return gm.load(np.arange(NUM_ELEMENTS), num_epochs=1, batch_size=1, worker_count=0)


def dataset() -> Any:
    return gm.MapDataset.range(NUM_ELEMENTS).batch(1).to_iter_dataset()


ITERATORS: dict[str, Callable[[], Any]] = {
    "loader": lambda: iter(loader()),
    "dataset": lambda: iter(dataset()),
    "feed": lambda: gm.feed(loader(), prefetch=0),
    "feed ahead": lambda: gm.feed(dataset(), prefetch=2),
}
PREFETCHES: dict[str, Callable[[], Any]] = {
    f"prefetch {size}": lambda size=size: experimental.ThreadPrefetchDatasetIterator(
        iter(dataset()), size
    )
    for size in (0, 2)
}


class Interrupts:
    """Raises `KeyboardInterrupt` once, at one of the lines that `next` runs in this thread."""

    def __init__(self, stop_at: int) -> None:
        self.num_lines = 0
        self.stop_at = stop_at

    def next(self, iterator: Any) -> int:
        sys.settrace(self._trace)
        try:
            element = next(iterator)
        finally:
            sys.settrace(None)
        return int(element[0])

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            self.num_lines += 1
            if self.num_lines == self.stop_at:
                raise KeyboardInterrupt
        return self._trace


def taken(iterator: Any, interrupts: Interrupts) -> list[int]:
    """Take all elements, and look at the state after each attempt."""
    seen: list[int] = []
    while True:
        before = json.dumps(_position(iterator))
        try:
            seen.append(interrupts.next(iterator))
        except KeyboardInterrupt:
            assert json.dumps(_position(iterator)) == before
        except StopIteration:
            return seen


def _position(iterator: Any) -> Any:
    state = iterator.get_state()
    return json.loads(state) if isinstance(state, bytes) else state


def lines_of(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("*.jsonl")
    return [line for line in map(json.loads, file.read_text().splitlines()) if "batch" in line]


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_interrupt_at_any_line_with_a_ledger(kind: str, tmp_path: Path):
    with ITERATORS[kind]() as iterator:
        iterator.keep_ledger(tmp_path / "0")
        list(iterator)
    expected = lines_of(tmp_path / "0")
    assert [line["step"] for line in expected] == list(range(NUM_ELEMENTS))

    interrupts = Interrupts(0)
    while interrupts.num_lines >= interrupts.stop_at:
        interrupts = Interrupts(interrupts.stop_at + 1)
        folder = tmp_path / str(interrupts.stop_at)
        with ITERATORS[kind]() as iterator:
            iterator.keep_ledger(folder)
            assert taken(iterator, interrupts) == list(range(NUM_ELEMENTS)), interrupts.stop_at
        assert lines_of(folder) == expected, interrupts.stop_at
    assert interrupts.stop_at > 50


@pytest.mark.parametrize("kind", [*ITERATORS, *PREFETCHES])
def test_an_interrupt_at_any_line_without_a_ledger(kind: str):
    interrupts = Interrupts(0)
    while interrupts.num_lines >= interrupts.stop_at:
        interrupts = Interrupts(interrupts.stop_at + 1)
        with {**ITERATORS, **PREFETCHES}[kind]() as iterator:
            assert taken(iterator, interrupts) == list(range(NUM_ELEMENTS)), interrupts.stop_at
    assert interrupts.stop_at > 20


@pytest.mark.parametrize("kind", ["loader", "dataset"])
def test_an_interrupt_at_any_line_of_a_restore_keeps_the_ledger_in_order(kind: str, tmp_path: Path):
    def restored(folder: Path, stop_at: int) -> int:
        with ITERATORS[kind]() as iterator:
            iterator.keep_ledger(folder)
            state = [next(iterator), iterator.get_state(), next(iterator)][1]
            interrupts = Interrupts(stop_at)
            sys.settrace(interrupts._trace)
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    iterator.set_state(state)
            finally:
                sys.settrace(None)
            first = int(next(iterator)[0])
            assert first in (1, 2)
            assert [int(element[0]) for element in iterator] == [*range(first + 1, NUM_ELEMENTS)]
        (file,) = folder.glob("*.jsonl")
        steps = list(ledger_file.read_ledger(file).steps)
        assert [step.step for step in steps] == list(range(NUM_ELEMENTS)), stop_at
        assert [step.batch for step in steps] == [line["batch"] for line in expected], stop_at
        return interrupts.num_lines

    with ITERATORS[kind]() as iterator:
        iterator.keep_ledger(tmp_path / "expected")
        list(iterator)
    expected = lines_of(tmp_path / "expected")
    stop_at = 1
    while restored(tmp_path / str(stop_at), stop_at) >= stop_at:
        stop_at += 1
    assert stop_at > 10
