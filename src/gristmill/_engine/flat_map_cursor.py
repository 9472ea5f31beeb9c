"""Find the cursor after some pieces of what flat maps give."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from gristmill._checkpoint.state import Position
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.steps import FlatMapNode
from gristmill._plan.traverse import steps_of
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.types import Cursor


def cursor_after(
    plan: Node, settings: Settings, *, num_records: int, pieces: Sequence[int]
) -> Cursor:
    """Give the cursor after some records and, of each flat map bottom up, some pieces.

    Which element it is that the pieces are of is known only by reading on: filters may lie below.
    """
    inline = replace(
        settings,
        read=ReadOptions(num_threads=0),
        multiprocessing=MultiprocessingOptions(),
        is_tuned=False,
    )
    flat_maps = [step for step in steps_of(plan) if isinstance(step, FlatMapNode)]
    cursor: Cursor = (num_records,)
    for node, count in zip(flat_maps, pieces, strict=True):
        cursor = (*cursor, 0)
        if count:
            stream = Stream(node, inline)
            stream.seek(Position(cursor))
            with contextlib.suppress(StopIteration):  # at its end it tells of pieces long gone
                for _ in range(count):
                    next(stream)
            cursor = stream.cursor
            stream.close()
    return cursor
