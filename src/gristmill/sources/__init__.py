"""WHERE records are."""

from gristmill.sources._array import ArraySource
from gristmill.sources._range import RangeDataSource
from gristmill.sources._shared_memory import SharedMemoryDataSource
from gristmill.types import RandomAccessDataSource

__all__ = ["ArraySource", "RandomAccessDataSource", "RangeDataSource", "SharedMemoryDataSource"]
