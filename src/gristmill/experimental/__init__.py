"""Grain's `experimental` module."""

from gristmill.transforms import FlatMap, MapWithIndex

FlatMapTransform = FlatMap
MapWithIndexTransform = MapWithIndex

__all__ = ["FlatMapTransform", "MapWithIndexTransform"]
