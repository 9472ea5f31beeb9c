"""Grain's `python.experimental` module."""

from gristmill.experimental import FlatMapTransform, MapWithIndexTransform

__all__ = ["FlatMapTransform", "MapWithIndexTransform"]
