"""Plan in the object store: put there once, fetched once by each node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.tree import is_jax_pytree
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.executors.serialization.serialize import keys_of


@final
@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """Pickled plans and their large buffers, as one object of the store."""

    payload: Any
    """A reference to the object: a list of arrays of bytes, the pickles first."""
    pytrees: Sequence[str]
    """See `PlanPayload`."""
    classes: tuple[type, ...] = ()
    """Classes in the plans, which are kept alive so that replies find them."""
    sources: Sequence[PackedSource] = ()
    """Sources and lists that need not be packed again."""


def store_plan(ray: Any, plan: PickledPlan) -> StoredPlan:
    """Put a plan into the object store. Ray copies its buffers there without pickling them."""
    return StoredPlan(
        payload=ray.put(_as_arrays(plan)),
        pytrees=keys_of(filter(is_jax_pytree, plan.pickles.classes)),
        classes=plan.pickles.classes,
        sources=plan.sources,
    )


def is_stored(ray: Any, stored: StoredPlan, plan: PickledPlan) -> bool:
    """Return whether the store has the same content as a plan: a source may have changed."""
    chunks, found = _as_arrays(plan), ray.get(stored.payload)
    return len(found) == len(chunks) and all(map(np.array_equal, found, chunks))


def _as_arrays(plan: PickledPlan) -> list[NDArray[np.uint8]]:
    return [np.frombuffer(chunk, np.uint8) for chunk in plan.chunks]
