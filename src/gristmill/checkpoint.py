"""Checkpoints: the states of iterators, and Orbax's handler for them."""

import typing as _typing

from gristmill._base.lazy import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from gristmill._checkpoint.array_state import state_to_arrays
    from gristmill._checkpoint.gather import gather_states
    from gristmill._checkpoint.orbax import CheckpointHandler as CheckpointHandler
    from gristmill._checkpoint.orbax import CheckpointRestore as CheckpointRestore
    from gristmill._checkpoint.orbax import CheckpointSave as CheckpointSave
    from gristmill._checkpoint.replicated import replicated_state
    from gristmill._checkpoint.skipped_record import SkippedRecord
else:
    __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "gristmill._checkpoint.array_state": "state_to_arrays",
            "gristmill._checkpoint.gather": "gather_states",
            "gristmill._checkpoint.orbax": "CheckpointHandler, CheckpointRestore, CheckpointSave",
            "gristmill._checkpoint.replicated": "replicated_state",
            "gristmill._checkpoint.skipped_record": "SkippedRecord",
        },
    )

__all__ = ["SkippedRecord", "gather_states", "replicated_state", "state_to_arrays"]
