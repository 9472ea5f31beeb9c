"""The state beside the stream."""

from gristmill.checkpoint._ledger import SkippedRecord
from gristmill.checkpoint._state import Fingerprint, Position, decode_state, encode_state

__all__ = ["Fingerprint", "Position", "SkippedRecord", "decode_state", "encode_state"]
