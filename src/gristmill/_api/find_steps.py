"""Find the steps of a dataset at which a record comes."""

from collections.abc import Iterator
from typing import Any

from gristmill._api.excluded import named_records
from gristmill._api.plan_access import pipeline_of
from gristmill._engine.lazy_replay import trace_steps_of
from gristmill._engine.provenance.origin import RecordOrigin
from gristmill._plan.exclusion import check_record, source_with_number
from gristmill._plan.nodes.combine_streams import InterleaveNode


def find_steps_of(dataset: Any, record: int | tuple[int, int] | RecordOrigin) -> Iterator[int]:
    """Return the steps at which a record comes, as `IterDataset.steps_of` describes it."""
    plan, settings, _ = pipeline_of(dataset)
    ((number, (index,)),) = named_records(plan, [record]).items()
    source = source_with_number(plan, number)
    if not isinstance(source, InterleaveNode):  # which has a source for each dataset
        check_record(source, index)
    return trace_steps_of(plan, settings, source_number=number, index=index)
