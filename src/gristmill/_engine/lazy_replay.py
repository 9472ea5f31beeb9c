"""Import the replay of elements when it is first used: most programs never ask for provenance."""

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gristmill._checkpoint.state import Position
from gristmill._engine.settings import Settings
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode
from gristmill.types import Cursor

if TYPE_CHECKING:
    from gristmill._engine.provenance.origin import Provenance, RecordOrigin


def trace_element(
    plan: Node, settings: Settings, before: Position, after: Cursor | None = None
) -> "Provenance":
    """Return the provenance of the element that follows a position, as `replay` does."""
    replay: Any = importlib.import_module("gristmill._engine.provenance.replay")
    return replay.trace_element(plan, settings, before, after)


def trace_steps_of(
    plan: Node, settings: Settings, *, source_number: int, index: int
) -> Iterator[int]:
    """Return the steps at which a record comes, as `steps_by_tracing` finds them."""
    module: Any = importlib.import_module("gristmill._engine.provenance.steps_by_tracing")
    return module.trace_steps_of(plan, settings, source_number=source_number, index=index)


def find_origins(sample: SampleNode, rows: list[list[int]]) -> "list[RecordOrigin]":
    """Return the records at some positions, as `origins_at` does."""
    replay: Any = importlib.import_module("gristmill._engine.provenance.replay")
    return replay.origins_at(sample, rows)


def find_held(plan: Node, settings: Settings, cursor: Cursor) -> set[tuple[int, int]]:
    """Return the records that a plan holds at a cursor, as `replay` does."""
    replay: Any = importlib.import_module("gristmill._engine.provenance.replay")
    return replay.records_held(plan, settings, cursor)
