"""WHICH record is next: pure integer maths."""

from gristmill.order._record import Record, RecordMetadata
from gristmill.order._sampler import BlockSampler, IndexSampler, Sampler, SequentialSampler
from gristmill.order._shard import ENDLESS, strided_length
from gristmill.order._shuffle import shuffled

__all__ = [
    "ENDLESS",
    "BlockSampler",
    "IndexSampler",
    "Record",
    "RecordMetadata",
    "Sampler",
    "SequentialSampler",
    "shuffled",
    "strided_length",
]
