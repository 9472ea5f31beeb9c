"""WHAT happens to one element."""

from gristmill.transforms._base import (
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
from gristmill.transforms._example import Feature, ParseExample
from gristmill.transforms._image import DecodeImage
from gristmill.transforms._operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from gristmill.transforms._selection import DatasetSelectionMap

__all__ = [
    "Batch",
    "BatchOperation",
    "DatasetSelectionMap",
    "DecodeImage",
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
