"""Transformations of elements: base classes to derive from, and some ready to use."""

from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.batching.pad import PadBatch, pad_batch
from gristmill._data.transforms.audio import Audio, DecodeAudio
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
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window
from gristmill._data.transforms.video import DecodeVideo

__all__ = [
    "Audio",
    "Batch",
    "BatchOperation",
    "BucketByLength",
    "DatasetSelectionMap",
    "DecodeAudio",
    "DecodeImage",
    "DecodeRandomCrop",
    "DecodeVideo",
    "Feature",
    "Filter",
    "FilterOperation",
    "FlatMap",
    "Map",
    "MapOperation",
    "MapWithIndex",
    "Operation",
    "PadBatch",
    "ParseExample",
    "RandomMap",
    "RandomMapOperation",
    "Scan",
    "SupportsMapBatch",
    "TfRandomMap",
    "Transformation",
    "Transformations",
    "Unbatch",
    "Window",
    "pad_batch",
]
