"""The state beside the stream."""

import typing as _typing

from gristmill._extras import names_on_demand as _names_on_demand
from gristmill.checkpoint._grain import GrainLoader
from gristmill.checkpoint._ledger import SkippedRecord
from gristmill.checkpoint._saving import Saved
from gristmill.checkpoint._state import (
    Position,
    State,
    check_shard,
    decode_state,
    encode_state,
    gather_states,
)

if _typing.TYPE_CHECKING:
    from gristmill.checkpoint._orbax import CheckpointHandler as CheckpointHandler
    from gristmill.checkpoint._orbax import CheckpointRestore as CheckpointRestore
    from gristmill.checkpoint._orbax import CheckpointSave as CheckpointSave
else:
    __getattr__ = _names_on_demand(
        __name__,
        home="gristmill.checkpoint._orbax",
        names={f"Checkpoint{kind}": f"Checkpoint{kind}" for kind in ("Handler", "Restore", "Save")},
    )

__all__ = [
    "GrainLoader",
    "Position",
    "Saved",
    "SkippedRecord",
    "State",
    "check_shard",
    "decode_state",
    "encode_state",
    "gather_states",
]
