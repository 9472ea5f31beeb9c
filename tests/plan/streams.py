"""Streams of plans that are made without a loader or a dataset."""

import contextlib
from typing import Any

from gristmill import MapDataset
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.nodes.base import Node
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.types import Cursor

INLINE = Settings(
    read=ReadOptions(num_threads=0),
    multiprocessing=MultiprocessingOptions(),
    worker=WorkerOptions(),
    is_tuned=False,
)


def plan_of(dataset: MapDataset[Any]) -> Node:
    """Return the plan of the stream of a dataset."""
    return dataset.to_iter_dataset()._plan_node


def take(plan: Node, count: int) -> tuple[list[Any], Cursor]:
    """Return the first elements of a stream, and the cursor after them."""
    stream = Stream(plan, INLINE)
    return [next(stream) for _ in range(count)], stream.cursor


def elements_of(plan: Node) -> list[Any]:
    """Return all elements of a stream."""
    stream = Stream(plan, INLINE)
    elements: list[Any] = []
    with contextlib.suppress(StopIteration):
        while True:
            elements.append(next(stream))
    return elements
