"""Random-access sources of records, by storage format."""

import typing as _typing

from gristmill._base.lazy import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from gristmill._data.sources.arrays.hdf5 import Hdf5Source
    from gristmill._data.sources.arrays.idx import IdxSource
    from gristmill._data.sources.arrays.numpy import NumpySource
    from gristmill._data.sources.arrays.zarr import ZarrSource
    from gristmill._data.sources.detect import open_source
    from gristmill._data.sources.memory.array import ArraySource
    from gristmill._data.sources.memory.frame import FrameSource
    from gristmill._data.sources.memory.range import RangeDataSource
    from gristmill._data.sources.memory.shared_memory import SharedMemoryDataSource
    from gristmill._data.sources.records.array_record import ArrayRecordDataSource
    from gristmill._data.sources.records.image_folder import ImageFolderSource
    from gristmill._data.sources.records.index_json.litdata import LitDataSource
    from gristmill._data.sources.records.index_json.mds import MdsSource
    from gristmill._data.sources.records.megatron import MegatronSource
    from gristmill._data.sources.records.tar.tar import TarSource
    from gristmill._data.sources.records.text.json_array import JsonArraySource
    from gristmill._data.sources.records.text.jsonl import JsonLinesSource
    from gristmill._data.sources.records.text.plain_text import TextSource
    from gristmill._data.sources.records.tfrecord import TFRecordSource
    from gristmill._data.sources.sqlite.source import SqliteSource
    from gristmill._data.sources.tables.arrow_ipc import ArrowSource
    from gristmill._data.sources.tables.csv import CsvSource
    from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
    from gristmill._data.sources.tables.parquet import ParquetSource
    from gristmill.types import RandomAccessDataSource
else:
    __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "gristmill._data.sources.arrays.idx": "IdxSource",
            "gristmill._data.sources.arrays.numpy": "NumpySource",
            "gristmill._data.sources.detect": "open_source",
            "gristmill._data.sources.memory.array": "ArraySource",
            "gristmill._data.sources.memory.range": "RangeDataSource",
            "gristmill._data.sources.memory.shared_memory": "SharedMemoryDataSource",
            "gristmill._data.sources.records.array_record": "ArrayRecordDataSource",
            "gristmill._data.sources.records.image_folder": "ImageFolderSource",
            "gristmill._data.sources.records.text.jsonl": "JsonLinesSource",
            "gristmill._data.sources.records.tar.tar": "TarSource",
            "gristmill._data.sources.records.tfrecord": "TFRecordSource",
            "gristmill._data.sources.sqlite.source": "SqliteSource",
            "gristmill._data.sources.tables.arrow_ipc": "ArrowSource",
            "gristmill._data.sources.tables.csv": "CsvSource",
            "gristmill._data.sources.tables.hugging_face": "HuggingFaceSource",
            "gristmill._data.sources.tables.parquet": "ParquetSource",
            "gristmill._data.sources.records.text.json_array": "JsonArraySource",
            "gristmill._data.sources.records.text.plain_text": "TextSource",
            "gristmill._data.sources.memory.frame": "FrameSource",
            "gristmill._data.sources.arrays.hdf5": "Hdf5Source",
            "gristmill._data.sources.arrays.zarr": "ZarrSource",
            "gristmill._data.sources.records.megatron": "MegatronSource",
            "gristmill._data.sources.records.index_json.litdata": "LitDataSource",
            "gristmill._data.sources.records.index_json.mds": "MdsSource",
            "gristmill.types": "RandomAccessDataSource",
        },
    )

__all__ = [
    "ArrayRecordDataSource",
    "ArraySource",
    "ArrowSource",
    "CsvSource",
    "FrameSource",
    "Hdf5Source",
    "HuggingFaceSource",
    "IdxSource",
    "ImageFolderSource",
    "JsonArraySource",
    "JsonLinesSource",
    "LitDataSource",
    "MdsSource",
    "MegatronSource",
    "NumpySource",
    "ParquetSource",
    "RandomAccessDataSource",
    "RangeDataSource",
    "SharedMemoryDataSource",
    "SqliteSource",
    "TFRecordSource",
    "TarSource",
    "TextSource",
    "ZarrSource",
    "open_source",
]
