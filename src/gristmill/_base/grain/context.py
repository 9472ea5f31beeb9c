"""What an iterator of the user's own may know of its pipeline, under the name it has in Grain.

Iterators that are written for Grain read the options of the pipeline, and the number of the worker
that they run in, from their attribute `_ctx`. It is an `IteratorContext` of gristmill, or of Grain
if that has been imported.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def update_context(
    context: object, options: Mapping[str, Any], *, process_index: int = 0, process_count: int = 1
) -> None:
    """Add options from further up in the pipeline to the context of an iterator.

    Args:
        context: The `_ctx` of an iterator. Anything else is left alone.
        options: Fields of `DatasetOptions`. They take priority.
        process_index: The number of the worker that reads the iterator's slice.
        process_count: The number of slices.
    """
    if type(context).__name__ != "IteratorContext":
        return
    found: Any = context
    options_class = found.dataset_options.__class__
    names = {field.name for field in fields(options_class) if field.init}
    given = {name: value for name, value in options.items() if name in names}
    found.dataset_options = options_class(**given).merge(found.dataset_options)
    if process_count > 1:
        worker_class = found.mp_context.__class__
        found.mp_context = worker_class(process_index=process_index, process_count=process_count)
