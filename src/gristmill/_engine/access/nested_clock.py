"""Measure the steps of a dataset one by one, although each of them calls the one below it.

A clock runs for one step at a time: it is read when a step calls the reader of another one, and
when that one returns. So a block costs two readings for each step, and an element nothing.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import final

from gristmill._base.trees.columns import Columns
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.error_notes import step_name
from gristmill._metrics.counters import num_bytes
from gristmill._metrics.step_time import StepTime, ThreadReading, begin_step, end_step
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.hints import HintNode, SeedNode
from gristmill._plan.nodes.rearrange import RearrangeNode
from gristmill._plan.nodes.sampled import SourceNode
from gristmill.types import Span

MAX_STEPS = 32
"""The steps of a dataset that has more, such as a mixture of many, are measured together."""


def base_step_names(bottom: Node) -> list[str]:
    """Return the names of what is measured at the bottom of a stream, bottom up.

    Steps of a dataset with the same name are measured together, and nodes that only change the
    order with the step above them.
    """
    if not isinstance(bottom, AccessNode):
        return [step_name(bottom)]
    names = list(dict.fromkeys(map(step_name, filter(_is_measured, _bottom_up(bottom.parent)))))
    return names if 0 < len(names) <= MAX_STEPS else [step_name(bottom)]


def _is_measured(node: Node) -> bool:
    return not isinstance(node, RearrangeNode | HintNode | SeedNode)


def _bottom_up(node: Node) -> Iterable[Node]:
    """Return each node of a dataset once, after those below it."""
    found: dict[int, Node] = {}
    opened: list[tuple[Node, bool]] = [(node, False)]
    while opened:
        node, is_above = opened.pop()
        if is_above:
            found[id(node)] = node
        elif id(node) not in found:
            opened.append((node, True))
            opened += [(parent, False) for parent in reversed(node.parents)]
    return found.values()


def size_of(block: Block) -> int:
    """Return the bytes in the records of a block, estimated from the first one if they are rows."""
    data = block.data
    if isinstance(data, Columns):
        return data.num_bytes
    return len(data) * num_bytes(data[0])


class _Running(threading.local):
    """What a thread has measured of the current block. The first step is the highest one."""

    times: list[StepTime]
    number: int
    reading: ThreadReading

    def switch(self, number: int) -> int:
        """Let another step run; return the number of the one that ran so far."""
        step, self.reading = end_step(self.reading)
        before = self.number
        self.times[before] = self.times[before].plus(step)
        self.number = number
        return before


@final
class NestedClock:
    """Measures the steps of a dataset. Several threads may read it at the same time.

    Args:
        names: The names of the steps, bottom up. See `base_step_names`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._top = len(names) - 1
        self._running = _Running()

    def measure(self, read: Callable[[Span], BlockResult]) -> Callable[[Span], BlockResult]:
        """Return the reader of the whole dataset, whose results have the time of each step."""
        running, top = self._running, self._top
        none = StepTime()

        def read_measured(span: Span) -> BlockResult:
            running.times = [none] * (top + 1)
            running.number = top
            running.reading = begin_step(None)
            result = read(span)
            running.switch(top)
            return result.with_step_times(tuple(running.times), running.reading)

        return read_measured

    def measure_step(
        self, node: Node, read: Callable[[Span], BlockResult]
    ) -> Callable[[Span], BlockResult]:
        """Return a reader whose own time, without those it calls, is that of the step of a node."""
        number = self._numbers.get(step_name(node))
        if number is None or not _is_measured(node):
            return read
        running = self._running
        is_source = isinstance(node, SourceNode | CustomNode)

        def read_step(span: Span) -> BlockResult:
            above = running.switch(number)
            try:
                result = read(span)
            finally:
                running.switch(above)
            if is_source and len(result.block):
                read_here = StepTime(num_records=len(result.block), num_bytes=size_of(result.block))
                running.times[number] = running.times[number].plus(read_here)
            return result

        return read_step
