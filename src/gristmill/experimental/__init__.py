"""Grain's `experimental` module."""

from gristmill.transforms import FlatMap as FlatMapTransform
from gristmill.transforms import MapWithIndex as MapWithIndexTransform

__all__ = ["FlatMapTransform", "MapWithIndexTransform"]
