"""WHICH record is next: pure integer maths."""

from gristmill.order._grain import own_sampler
from gristmill.order._record import Record, RecordMetadata
from gristmill.order._rest import Rest
from gristmill.order._sampler import (
    AllShards,
    BlockSampler,
    IndexSampler,
    Sampler,
    SequentialSampler,
)
from gristmill.order._shard import ENDLESS, strided_length
from gristmill.order._shuffle import shuffled

__all__ = [
    "ENDLESS",
    "AllShards",
    "BlockSampler",
    "IndexSampler",
    "Record",
    "RecordMetadata",
    "Rest",
    "Sampler",
    "SequentialSampler",
    "own_sampler",
    "shuffled",
    "strided_length",
]
