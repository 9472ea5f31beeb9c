"""Messages between the parent and an actor: the arguments and results of its methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from gristmill._engine.executors.serialization.block_codec import BlockTimes, Message
from gristmill._engine.executors.serialization.log_relay import RelayedLog, RelaySettings


@final
@dataclass(frozen=True, slots=True)
class ActorInit(Message):
    """How an actor is started."""

    worker: int
    """The number of the worker."""
    num_workers: int
    pytrees: Sequence[str]
    """See `PlanPayload`."""
    relay_settings: RelaySettings


@final
@dataclass(frozen=True, slots=True)
class Started(Message):
    """The actor has loaded the plans, or cannot."""

    node_id: str
    """What Ray calls its machine."""
    node: str
    """The address of its machine, and the start of `node_id`."""
    error: bytes | None
    """Why the plans could not be loaded, if so. See `dump_error`."""
    logs: Sequence[RelayedLog]


@final
@dataclass(frozen=True, slots=True)
class BlockHeader(Message):
    """The result of a task, apart from its large arrays."""

    content: bytes | None
    """A pickled `BlockContent`. `None`: it is the last of the buffers."""
    num_bytes: int
    """Bytes of the buffers, which are in the object store. Without any, nothing is."""
    error: bytes | None
    """The error after the last element, if any. See `dump_error`."""
    times: BlockTimes
    missing: str
    """The error for a file or module that is missing there, if a record was skipped for it."""
    logs: Sequence[RelayedLog]
