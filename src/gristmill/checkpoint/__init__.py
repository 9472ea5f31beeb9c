"""The state beside the stream."""

from gristmill.checkpoint._state import Fingerprint, decode_state, encode_state

__all__ = ["Fingerprint", "decode_state", "encode_state"]
