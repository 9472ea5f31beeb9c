"""The names of Grain's `multiprocessing` module."""

from gristmill.options import MultiprocessingOptions

__all__ = ["MultiprocessingOptions"]
