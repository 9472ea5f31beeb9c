"""The names of Grain's `sharding` module."""

from gristmill.options import NoSharding, ShardByJaxProcess, ShardOptions

__all__ = ["NoSharding", "ShardByJaxProcess", "ShardOptions"]
