"""Find the part of a plan that cannot be sent to a worker, for an error that names it."""

from collections.abc import Iterator
from dataclasses import fields
from pickle import PickleBuffer
from typing import Any

from gristmill._engine.executors.serialization.serialize import dump_plan
from gristmill._engine.executors.serialization.unpicklable import find_unpicklable
from gristmill._plan.nodes.base import Node
from gristmill.errors import PlanTypeError


def explain_unsendable(plan: Node, error: Exception) -> PlanTypeError:
    """Explain why `dump_plan(plan)` raised `error`: which step, where it was added, what in it.

    >>> import threading
    >>> from gristmill._plan.nodes.sampled import SourceNode
    >>> lock = threading.Lock()
    >>> node = SourceNode(site="train.py:12", source=[1, lock])
    >>> print(explain_unsendable(node, TypeError()))  # doctest: +NORMALIZE_WHITESPACE
    list(<2 records>), added at train.py:12, cannot be sent to a worker: `data_source[1]` is a
    _thread.lock. Make it on first use inside the source, or in `worker_init_fn`, or use
    `worker_count=0`.
    """
    for node in _nodes(plan):
        for name, value in _own_parts(node):
            what = f"{node.label}, added at {node.site},"
            explained = _explain(what, name, value, node.user_part)
            if explained is not None:
                return explained
    return _whole_error("The pipeline", error)


def explain_unsendable_value(name: str, value: Any, error: Exception) -> PlanTypeError:
    """Explain why an argument that is not part of a plan, such as `worker_init_fn`, is not sent."""
    explained = _explain(f"`{name}`", name, value, "function")
    if explained is None:
        return _whole_error(f"`{name}`", error)
    return explained


_ROOTS = {"source": "data_source", "function": "", "batch_function": "", "rows_function": ""}
"""The arguments that these fields come from; a function has a name of its own."""


def _explain(what: str, name: str, value: Any, remedy: str) -> PlanTypeError | None:
    failure = _failure(value)
    if failure is None:
        return None
    culprit = find_unpicklable(name, value, failure, _failure)
    return PlanTypeError(
        f"{what} cannot be sent to a worker: {culprit.describe()}. Make it on first use inside the "
        f"{remedy}, or in `worker_init_fn`, or use `worker_count=0`."
    )


def _whole_error(what: str, error: Exception) -> PlanTypeError:
    explained = PlanTypeError(
        f"{what} cannot be sent to a worker: {type(error).__name__}: {error}. "
        "Use `worker_count=0`, or leave out what cannot be pickled."
    )
    explained.__cause__ = error
    return explained


def _failure(value: Any) -> Exception | None:
    try:
        dump_plan(value, buffer_callback=_discard)
    except Exception as error:
        return error
    return None


def _discard(_: PickleBuffer) -> None:
    """Leave the memory of arrays out of a pickle that is never loaded."""


def _nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan, bottom up."""
    for parent in plan.parents:
        yield from _nodes(parent)
    yield plan


def _own_parts(node: Node) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a node that come from the user, under the names of the arguments."""
    for field in fields(node):
        value = getattr(node, field.name)
        if field.name in ("site", "parent", "inputs", "name") or value is None:
            continue
        name = _ROOTS.get(field.name, field.name)
        yield name or getattr(value, "__name__", field.name), value
