"""Transformations of elements: base classes to derive from, and some ready to use."""

from gristmill._data.transforms.base import (
    Batch,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    SupportsMapBatch,
    TfRandomMap,
    Transformation,
    Transformations,
)
from gristmill._data.transforms.example import Feature, ParseExample
from gristmill._data.transforms.image import DecodeImage, DecodeRandomCrop
from gristmill._data.transforms.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from gristmill._data.transforms.selection import DatasetSelectionMap

__all__ = [
    "Batch",
    "BatchOperation",
    "DatasetSelectionMap",
    "DecodeImage",
    "DecodeRandomCrop",
    "Feature",
    "Filter",
    "FilterOperation",
    "FlatMap",
    "Map",
    "MapOperation",
    "MapWithIndex",
    "Operation",
    "ParseExample",
    "RandomMap",
    "RandomMapOperation",
    "SupportsMapBatch",
    "TfRandomMap",
    "Transformation",
    "Transformations",
]
