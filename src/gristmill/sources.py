"""Random-access sources of records, by storage format."""

from gristmill._data.sources.arrays.idx import IdxSource
from gristmill._data.sources.arrays.numpy import NumpySource
from gristmill._data.sources.detect import open_source
from gristmill._data.sources.memory.array import ArraySource
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._data.sources.memory.shared_memory import SharedMemoryDataSource
from gristmill._data.sources.records.array_record import ArrayRecordDataSource
from gristmill._data.sources.records.image_folder import ImageFolderSource
from gristmill._data.sources.records.jsonl import JsonLinesSource
from gristmill._data.sources.records.tar import TarSource
from gristmill._data.sources.records.tfrecord import TFRecordSource
from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill._data.sources.tables.arrow_ipc import ArrowSource
from gristmill._data.sources.tables.csv import CsvSource
from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
from gristmill._data.sources.tables.parquet import ParquetSource
from gristmill.types import RandomAccessDataSource

__all__ = [
    "ArrayRecordDataSource",
    "ArraySource",
    "ArrowSource",
    "CsvSource",
    "HuggingFaceSource",
    "IdxSource",
    "ImageFolderSource",
    "JsonLinesSource",
    "NumpySource",
    "ParquetSource",
    "RandomAccessDataSource",
    "RangeDataSource",
    "SharedMemoryDataSource",
    "SqliteSource",
    "TFRecordSource",
    "TarSource",
    "open_source",
]
