"""Write records as ArrayRecord or TFRecord files.

Records that are bytes are written unchanged, and others as `tf.train.Example`. Arrays of numbers
are stored as their bytes: as a list of integers they would take more room, and parsing them a
hundred times as long. Their dtypes and shapes are in `features.json`.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import cast, final

import numpy as np

from gristmill._base.extras import load_extra
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.sources.records.crc32c import masked_crcs
from gristmill._data.writers.records import as_columns
from gristmill._data.writers.target import Blocks, Target, mismatch
from gristmill.errors import BatchError, FileError, GristmillError
from gristmill.types import AnyArray, Element, JsonObject

_LENGTH = struct.Struct("<Q")


@final
class ExampleRecords:
    """Encodes records like those of a sample."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self.is_bytes = all(isinstance(record, bytes) for record in sample)
        self._features = {} if self.is_bytes else _describe_features(sample)

    def write_features(self, folder: Path) -> None:
        """Write the dtypes and shapes, which an Example does not contain."""
        if self._features:
            features = json.dumps(self._features, indent=2)
            path = folder / "features.json"
            path.unlink(missing_ok=True)  # of an earlier attempt; a link must not be followed
            with open(path, "x", encoding="utf-8") as file:
                file.write(features + "\n")

    def reading_code(self, source: str, folder: str) -> str:
        """Return the Python expression that reads and parses the records of a source."""
        if self.is_bytes:
            return source
        parse = f"gristmill.transforms.ParseExample.read({folder + '/features.json'!r})"
        return f"gristmill.MapDataset.source({source}).map({parse})"

    def encode(self, record: Element, index: int) -> bytes:
        """Return a record as bytes."""
        if isinstance(record, bytes) and self.is_bytes:
            return record
        columns = as_columns(record)
        for key, value in columns.items():
            if value is None:
                raise BatchError(
                    f"{key!r} of record {index:,} is null, which a `tf.train.Example` cannot "
                    "hold. Write Parquet files (`format='parquet'`), or leave the column out."
                )
            if self._features.get(key, {}).get("is_raw"):
                columns[key] = self._as_bytes(key, value, index)
        try:
            return format_example(columns)
        except (ValueError, TypeError) as error:
            error.add_note(
                f"In record {index:,}. Parquet (`format='parquet'`) supports more types."
            )
            raise

    def _as_bytes(self, key: str, value: Element, index: int) -> bytes:
        feature = self._features[key]
        array = np.asarray(value)
        shape = feature["shape"]
        if array.dtype.name != feature["dtype"] or list(array.shape) != (shape or [array.size]):
            expected = f"{feature['dtype']}{'[...]' if shape is None else shape}"
            raise mismatch(f"{key!r} is {array.dtype}{list(array.shape)}, not {expected}", index)
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _describe_features(sample: Sequence[Element]) -> dict[str, JsonObject]:
    """Return the dtype and the shape of each feature, which an Example does not store."""
    features: dict[str, JsonObject] = {}
    rows = [as_columns(record) for record in sample]
    for row in rows:
        for name, value in row.items():
            array = np.asarray(value)
            shape = list(array.shape)
            feature = features.setdefault(name, {"dtype": None, "shape": shape})
            if array.size or isinstance(value, np.ndarray):  # the type of an empty list is unknown
                kinds = {"U": "str", "S": "bytes", "O": "bytes"}
                feature["dtype"] = kinds.get(array.dtype.kind, array.dtype.name)
            if feature["shape"] != shape:
                feature["shape"] = None  # differs between records
    return {
        name: {
            **feature,
            "dtype": feature["dtype"] or "bytes",
            **({"is_raw": True} if _is_raw([row.get(name) for row in rows]) else {}),
        }
        for name, feature in features.items()
    }


def _is_raw(values: Sequence[Element]) -> bool:
    """Return whether a column holds arrays of numbers of one dtype, and one shape or one axis."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return False
    arrays = cast("Sequence[AnyArray]", values)
    first = arrays[0]
    return (
        first.ndim > 0
        and first.dtype.kind in "biuf"
        and all(array.dtype == first.dtype for array in arrays)
        and (
            all(array.ndim == 1 for array in arrays)
            or all(array.shape == first.shape for array in arrays)
        )
    )


@final
class ArrayRecordTarget(Target):
    """Writes ArrayRecord files, with the library of that name."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._library = load_extra(
            "array_record.python.array_record_module",
            extra="array-record",
            wanted_by="Writing ArrayRecord files",
        )
        self._records = ExampleRecords(sample)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        path = str(folder / f"{name}.array_record")
        try:
            writer = self._library.ArrayRecordWriter(path, "group_size:1")
            try:
                for first, records in blocks:
                    for index, record in enumerate(records, start=first):
                        writer.write(self._records.encode(record, index))
            finally:
                writer.close()
        except RuntimeError as error:  # of the library, for example if the disk is full
            if isinstance(error, GristmillError):
                raise
            reason = str(error).partition(";")[0]
            raise FileError(f"The shard cannot be written: {reason}.", path=path) from error

    def finish(self, folder: Path) -> None:
        self._records.write_features(folder)

    def reading_code(self, folder: str) -> str:
        source = f"gristmill.sources.ArrayRecordDataSource({folder + '/*.array_record'!r})"
        return self._records.reading_code(source, folder)


@final
class TFRecordTarget(Target):
    """Writes TFRecord files."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._records = ExampleRecords(sample)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        with open(folder / f"{name}.tfrecord", "xb") as file:
            for first, records in blocks:
                numbered = enumerate(records, start=first)
                encoded = [self._records.encode(record, index) for index, record in numbered]
                lengths = [_LENGTH.pack(len(data)) for data in encoded]
                checksums = zip(
                    masked_crcs(lengths).tolist(), masked_crcs(encoded).tolist(), strict=True
                )
                for length, data, (of_length, of_data) in zip(
                    lengths, encoded, checksums, strict=True
                ):
                    file.write(length + struct.pack("<I", of_length))
                    file.write(data)
                    file.write(struct.pack("<I", of_data))

    def finish(self, folder: Path) -> None:
        self._records.write_features(folder)

    def reading_code(self, folder: str) -> str:
        source = f"gristmill.sources.TFRecordSource({folder + '/*.tfrecord'!r})"
        return self._records.reading_code(source, folder)
