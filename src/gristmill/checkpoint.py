"""Checkpoints: the states of iterators, and Orbax's handler for them."""

import typing as _typing

from gristmill._base.extras import lazy_attributes as _lazy_attributes
from gristmill._checkpoint.gather import gather_states
from gristmill._checkpoint.skipped_record import SkippedRecord

if _typing.TYPE_CHECKING:
    from gristmill._checkpoint.orbax import CheckpointHandler as CheckpointHandler
    from gristmill._checkpoint.orbax import CheckpointRestore as CheckpointRestore
    from gristmill._checkpoint.orbax import CheckpointSave as CheckpointSave
else:
    __getattr__ = _lazy_attributes(
        __name__,
        target="gristmill._checkpoint.orbax",
        names={f"Checkpoint{kind}": f"Checkpoint{kind}" for kind in ("Handler", "Restore", "Save")},
    )

__all__ = ["SkippedRecord", "gather_states"]
