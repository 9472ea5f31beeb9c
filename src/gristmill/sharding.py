"""The names of Grain's `sharding` module."""

from gristmill._api.feeding.mesh_shards import ShardByMesh
from gristmill.options import NoSharding, ShardByJaxProcess, ShardOptions

__all__ = ["NoSharding", "ShardByJaxProcess", "ShardByMesh", "ShardOptions"]
