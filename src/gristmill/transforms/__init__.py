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
    "Filter",
    "FilterOperation",
    "FlatMap",
    "Map",
    "MapOperation",
    "MapWithIndex",
    "Operation",
    "RandomMap",
    "RandomMapOperation",
    "SupportsMapBatch",
    "TfRandomMap",
    "Transformation",
    "Transformations",
]
