"""WHERE records are."""

from gristmill.sources._array import ArraySource
from gristmill.sources._array_record import ArrayRecordDataSource
from gristmill.sources._csv import CsvSource
from gristmill.sources._detect import FORMATS, detect_format, files_of, open_source
from gristmill.sources._hugging_face import HuggingFaceSource
from gristmill.sources._idx import IdxSource
from gristmill.sources._image_folder import ImageFolderSource
from gristmill.sources._ipc import ArrowSource
from gristmill.sources._jsonl import JsonLinesSource
from gristmill.sources._numpy import NumpySource
from gristmill.sources._parquet import ParquetSource
from gristmill.sources._range import RangeDataSource
from gristmill.sources._shared_memory import SharedMemoryDataSource
from gristmill.sources._sqlite import SqliteSource
from gristmill.sources._streams import ParquetStream, TFRecordStream
from gristmill.sources._tar import TarSource
from gristmill.sources._tfrecord import TFRecordSource
from gristmill.types import RandomAccessDataSource

__all__ = [
    "FORMATS",
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
    "ParquetStream",
    "RandomAccessDataSource",
    "RangeDataSource",
    "SharedMemoryDataSource",
    "SqliteSource",
    "TFRecordSource",
    "TFRecordStream",
    "TarSource",
    "detect_format",
    "files_of",
    "open_source",
]
