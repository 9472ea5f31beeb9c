"""Find the cursor after some outputs of flat maps."""

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
    plan: Node, settings: Settings, *, num_records: int, outputs: Sequence[int]
) -> Cursor:
    """Return the cursor after some records and some outputs of the flat maps on the next record.

    Filters below a flat map may drop records, so the element that it is at is found by reading.

    Args:
        plan: The plan.
        settings: How the plan is run. Reading happens inline.
        num_records: The number of records that are complete.
        outputs: For each flat map, bottom up, how many outputs were handed out.
    """
    inline = replace(
        settings,
        read=ReadOptions(num_threads=0),
        multiprocessing=MultiprocessingOptions(),
        is_tuned=False,
    )
    flat_maps = [step for step in steps_of(plan) if isinstance(step, FlatMapNode)]
    cursor: Cursor = (num_records,)
    for node, count in zip(flat_maps, outputs, strict=True):
        cursor = (*cursor, 0)
        if count:
            stream = Stream(node, inline)
            stream.seek(Position(cursor))
            with contextlib.suppress(StopIteration):  # the state is from the end of the stream
                for _ in range(count):
                    next(stream)
            cursor = stream.cursor
            stream.close()
    return cursor
