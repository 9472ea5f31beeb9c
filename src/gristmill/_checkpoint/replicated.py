"""One state of all JAX processes, as arrays that are equal in each of them."""

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill._checkpoint.array_state import PADDING, state_from_arrays, state_to_arrays
from gristmill._checkpoint.gather import gather_states
from gristmill.types import JsonObject


def replicated_state(state: bytes | JsonObject) -> dict[str, NDArray[np.int32]]:
    """Return the states of all JAX processes together, as arrays that are equal in each process.

    Some checkpoints, such as the emergency checkpoints of Orbax, take only arrays that are equal in
    all processes. `set_state` of each process restores its part, also with another
    number of processes. It is a collective operation: all processes must call it, in the same
    order as their other computations. One process returns `state_to_arrays(state)`.

    Args:
        state: A result of `get_state`, of the shard of this process.

    Raises:
        StateError: The states of the processes are not those of all shards of one run.

    >>> from gristmill import MapDataset
    >>> iterator = iter(MapDataset.range(5))
    >>> next(iterator)
    0
    >>> arrays = replicated_state(iterator.get_state())
    >>> again = iter(MapDataset.range(5))
    >>> again.set_state(arrays)
    >>> next(again)
    1
    """
    jax: Any = load_extra("jax", extra="jax", wanted_by="`replicated_state`")
    arrays = state_to_arrays(state)
    if jax.process_count() == 1:
        return arrays
    gather: Any = importlib.import_module("jax.experimental.multihost_utils").process_allgather
    sizes = {name: np.array(leaf.size) for name, leaf in arrays.items()}
    longest = {name: int(np.max(sizes)) for name, sizes in gather(sizes).items()}
    padded = {
        name: np.pad(leaf, (0, longest[name] - leaf.size), constant_values=PADDING)
        for name, leaf in arrays.items()
    }
    gathered = {name: np.asarray(leaves) for name, leaves in gather(padded).items()}
    own = [
        {name: leaves[number] for name, leaves in gathered.items()}
        for number in range(jax.process_count())
    ]
    return state_to_arrays(gather_states([state_from_arrays(one) for one in own]))
