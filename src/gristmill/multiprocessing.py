"""The names of Grain's `multiprocessing` module."""

from gristmill._base.memory.shared_memory_array import SharedMemoryArray, SharedMemoryArrayMetadata
from gristmill.options import MultiprocessingOptions

__all__ = ["MultiprocessingOptions", "SharedMemoryArray", "SharedMemoryArrayMetadata"]
