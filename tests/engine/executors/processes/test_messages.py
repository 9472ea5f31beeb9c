"""Messages between processes: data that arrives as it was sent."""

import dataclasses
import pickle
from typing import Any

import pytest

from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._engine.executors.processes.messages import (
    ComputeTask,
    Init,
    InitFailed,
    LogRelay,
    Progress,
    Ready,
    ReleaseSlots,
    SlotsClosed,
    SlowTask,
    TaskDone,
    TrimMemory,
    WithdrawTask,
)
from gristmill._engine.executors.ray.messages import ActorInit, BlockHeader, Started
from gristmill._engine.executors.serialization.block_codec import (
    BlockContent,
    BlockTimes,
    Message,
    SentSkip,
)
from gristmill._engine.executors.serialization.log_relay import RelayedRecord, relay_settings
from gristmill._metrics.step_time import computing

SKIP = SentSkip((3,), (2,), SkippedRecord(2, 7, "Map decode", "ValueError: x"), b"error")
MESSAGES = [
    Init(1, 2, [100, 64], ["key"], relay_settings()),
    ComputeTask(5, 0, range(10, 20), True, [3, 4]),
    WithdrawTask(5),
    ReleaseSlots([3]),
    TrimMemory([1, 2]),
    SlotsClosed([1]),
    SlowTask(5, 61.0, "Map decode"),
    Ready(),
    InitFailed(b"error"),
    Progress(3, None),
    TaskDone(
        5,
        b"content",
        [(1, 0, 64)],
        [(1, 65_536)],
        [2],
        None,
        BlockTimes((computing(0.5),), busy_s=0.6, transfer_s=0.1),
    ),
    LogRelay(RelayedRecord({"name": "root", "levelno": 30, "msg": "x"})),
    BlockContent([1, 2], lineage_of(range(2)), None, [SKIP], (), False),
    SKIP,
    ActorInit(1, 2, ["key"], relay_settings()),
    Started("0a1b", "10.0.0.2/0a1b", None, ()),
    BlockHeader(None, 64, None, BlockTimes(), "", ()),
]


def test_every_message_is_covered():
    # By name: `slots=True` makes a second class of each, and the first one may still be alive.
    classes = {kind.__name__ for kind in Message.__subclasses__()}
    assert {type(message).__name__ for message in MESSAGES} == classes


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Any):
    arrived = pickle.loads(pickle.dumps(message, protocol=5))

    assert type(arrived) is type(message)
    for field in dataclasses.fields(message):
        sent, received = getattr(message, field.name), getattr(arrived, field.name)
        assert received == sent or repr(received) == repr(sent) or field.name == "lineage"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_cannot_be_changed(message: Any):
    for field in dataclasses.fields(message):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(message, field.name, None)
