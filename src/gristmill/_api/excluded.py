"""The records that users name, by the number of their source, and the exclusion of records."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

from gristmill._base.checks import as_int
from gristmill._engine.provenance.origin import RecordOrigin
from gristmill._engine.run import Run
from gristmill._plan.exclusion import numbered_sources
from gristmill._plan.nodes.base import Node
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Cursor

ToExclude: TypeAlias = Iterable[int | tuple[int, int] | RecordOrigin]
"""Records: indices in the only source, pairs of a source's number and an index, or origins."""


def exclude_records(
    run: Run,
    records: ToExclude,
    steps: Iterable[int],
    find_step: Callable[[int], Cursor | None],
) -> None:
    """Leave records out of a run.

    Args:
        run: What the iterator runs.
        records: The records.
        steps: Steps, all records of which are left out.
        find_step: Returns the cursor before a step, or `None` if elements must be counted.
    """
    plan, _, _ = run.pipeline
    found = named_records(plan, records)
    numbers = sorted({as_int("steps", step) for step in _as_iterable("steps", steps)})
    for number, index in run.records_at(numbers, find_step) if numbers else ():
        found[number].add(index)
    run.exclude(found)


def named_records(plan: Node, records: ToExclude) -> dict[int, set[int]]:
    """Return the indices of records by the number of their source, in a `defaultdict`.

    Raises:
        PlanError: There are indices, but several sources.
    """
    found: dict[int, set[int]] = defaultdict(set)
    plain: list[int] = []
    if isinstance(records, range):
        plain += records
        records = ()
    for record in _as_iterable("records", records):
        if isinstance(record, RecordOrigin):
            found[record.source_number].add(record.index)
        elif isinstance(record, tuple):
            number, index = _as_pair(cast("tuple[Any, ...]", record))
            found[as_int("records", number)].add(as_int("records", index))
        else:
            plain.append(as_int("records", record))
    if plain:
        num_sources = len(numbered_sources(plan))
        if num_sources > 1:
            raise PlanError(
                f"The pipeline has {num_sources} sources. Pass the origins of records, as "
                "`provenance().records` contains them, or pairs of a source's number and an index."
            )
        found[0].update(plain)
    return found


def _as_iterable(argument: str, value: Any) -> Iterable[Any]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise PlanTypeError(f"`{argument}` must be a list of them, got {value!r:.100}.")
    return cast("Iterable[Any]", value)


def _as_pair(record: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(record) != 2:
        raise PlanTypeError(
            f"`records` must be pairs of a source's number and an index, got {record!r:.100}."
        )
    return record
