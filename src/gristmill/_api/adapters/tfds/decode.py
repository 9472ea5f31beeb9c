"""Decodes serialized records of a TFDS dataset, by TFDS or, to the same values, many at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast, final

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from gristmill._api.adapters.tfds.layout import Feature, FieldSpec, RecordLayout
from gristmill._api.adapters.tfds.png import decode_pngs
from gristmill._data.example_proto.parse_many import (
    BYTES,
    FLOATS,
    INTEGERS,
    FeatureOffsets,
    find_features,
    parse_floats,
    parse_integers,
)
from gristmill.types import AnyArray, AnyDType, Element, Indices, Tree

_CHUNK_BYTES, _MIN_CHUNK_RECORDS = 512 * 1024, 64
"""Records are decoded in chunks of about this many bytes, but at least this many records."""

_MIN_VECTORIZED_RECORDS = 8
"""For fewer records TFDS is faster one by one: decoding them together takes many NumPy calls,
however few they are."""

MakeError: TypeAlias = Callable[[int, Exception], Exception]
"""Makes the error to raise for a record, from its index among the records to decode and the error
of TFDS."""


@final
class LazyFeatures:
    """The features of a dataset, which are unpickled only when a record needs them.

    A worker that decodes only plain records never imports TFDS.
    """

    def __init__(self, features: Feature) -> None:
        self._features = features
        self._pickled: bytes | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether TFDS has been imported for them already, which takes a second or two."""
        return self._features is not None

    def decode(self, record: bytes) -> Tree:
        """Decode a record as TFDS data sources do."""
        return self._load().deserialize_example_np(record)

    def decode_image(self, path: Sequence[str], data: bytes) -> AnyArray:
        """Decode one image of a record as TFDS data sources do."""
        return _get_at_path(self._load(), path).decode_example_np(data)

    def _load(self) -> Feature:
        if self._features is None:
            self._features = cloudpickle.loads(self._pickled)  # pyright: ignore
            self._pickled = None
        return self._features

    def __getstate__(self) -> bytes:
        if self._pickled is not None:
            return self._pickled
        return cast(bytes, cloudpickle.dumps(self._features))  # pyright: ignore

    def __setstate__(self, state: bytes) -> None:
        self._features, self._pickled = None, state


@final
class DecodedRecords:
    """Decoded records: columns, one for each field, and the records that do not fit into them."""

    def __init__(self, columns: list[AnyArray], count: int) -> None:
        self.columns = columns
        self.count = count
        self.irregular: dict[int, list[object]] = {}
        """The values of records that do not fit, by row."""

    def rows(self, layout: RecordLayout) -> list[Element]:
        """Return the records one by one."""
        records: list[Element] = []
        for row in range(self.count):
            values = self.irregular.get(row)
            if values is None:
                values = [_copy_array(column[row]) for column in self.columns]
            records.append(layout.build(values))
        return records


@final
class RecordDecoder:
    """Decodes serialized records into columns."""

    def __init__(self, layout: RecordLayout, features: LazyFeatures) -> None:
        self.layout = layout
        self._features = features

    def decode(self, records: Sequence[bytes], make_error: MakeError) -> DecodedRecords:
        """Decode many records.

        Args:
            records: The serialized records.
            make_error: Makes the error to raise for a record that cannot be decoded.
        """
        fields, count = self.layout.fields, len(records)
        if not self.layout.is_columnar:
            decoded = DecodedRecords([], count)
            for row, record in enumerate(records):
                decoded.irregular[row] = self._decode_one(row, record, make_error)
            return decoded
        is_done = np.zeros(count, np.bool_)
        decoded = DecodedRecords([_make_empty_column(field, count) for field in fields], count)
        is_faster_by_tfds = count < _MIN_VECTORIZED_RECORDS and self._features.is_loaded
        if self.layout.is_plain and not is_faster_by_tfds:
            for chunk in _split_into_chunks(records):
                columns = [column[chunk] for column in decoded.columns]
                is_done[chunk] = self._decode_chunk(records[chunk], columns)
        for row in np.flatnonzero(~is_done).tolist():
            values = self._decode_one(row, records[row], make_error)
            if all(field.fits(value) for field, value in zip(fields, values, strict=True)):
                for column, value in zip(decoded.columns, values, strict=True):
                    column[row] = value
            else:
                decoded.irregular[row] = values
        return decoded

    def _decode_one(self, row: int, record: bytes, make_error: MakeError) -> list[object]:
        try:
            tree = self._features.decode(record)
            return [field.to_dtype(_get_at_path(tree, field.path)) for field in self.layout.fields]
        except Exception as error:
            raise make_error(row, error) from error

    def _decode_chunk(self, records: Sequence[bytes], columns: list[AnyArray]) -> NDArray[np.bool_]:
        """Decode records without TFDS into the columns, and return for which that was possible."""
        fields = self.layout.fields
        found = find_features(records, [field.key for field in fields])
        is_done = found.is_whole
        for number, field in enumerate(fields):
            is_done &= found.kinds[:, number] == _get_stored_kind(field)
        for number, (field, column) in enumerate(zip(fields, columns, strict=True)):
            rows = np.flatnonzero(is_done)
            if len(rows):
                values, is_valid = self._decode_field(field, found, rows, number)
                column[rows if len(rows) < len(column) else ...] = values
                is_done[rows] = is_valid
        return is_done

    def _decode_field(
        self, field: FieldSpec, found: FeatureOffsets, rows: Indices, number: int
    ) -> tuple[AnyArray, NDArray[np.bool_]]:
        """Return the values of a field, and which of them are valid."""
        stored = found.values(rows, number)
        if field.kind == "string":
            strings = np.empty(len(stored), object)
            strings[:] = stored
            return strings, np.ones(len(stored), np.bool_)
        shape, dtype = cast("tuple[int, ...]", field.shape), cast("AnyDType", field.dtype)
        if field.kind == "image":
            return self._decode_images(field, stored)
        return (parse_floats if dtype.kind == "f" else parse_integers)(stored, shape, dtype)

    def _decode_images(
        self, field: FieldSpec, stored: list[bytes]
    ) -> tuple[AnyArray, NDArray[np.bool_]]:
        """Decode images: small PNG files together, others one by one by TFDS."""
        images, is_done = decode_pngs(stored, cast("tuple[int, int, int]", field.shape))
        for row in np.flatnonzero(~is_done).tolist():
            try:
                image = self._features.decode_image(field.path, stored[row])
            except Exception:
                continue  # decoding the whole record raises the error
            if field.fits(image):
                images[row] = image
                is_done[row] = True
        return images, is_done


def _split_into_chunks(records: Sequence[bytes]) -> Iterator[slice]:
    """Yield slices of a block whose bytes fit into the CPU cache."""
    total = sum(map(len, records))
    size = max(_MIN_CHUNK_RECORDS, len(records) * _CHUNK_BYTES // max(1, total))
    for start in range(0, len(records), size):
        yield slice(start, start + size)


def _get_stored_kind(field: FieldSpec) -> int:
    if field.kind in ("string", "image") or field.dtype is None:
        return BYTES
    return FLOATS if field.dtype.kind == "f" else INTEGERS


def _make_empty_column(field: FieldSpec, count: int) -> AnyArray:
    if field.dtype is None or field.shape is None:
        return np.empty(count, object)
    return np.empty((count, *field.shape), field.dtype)


def _get_at_path(tree: Tree, path: Sequence[str]) -> Tree:
    for name in path:
        tree = tree[name]
    return tree


def _copy_array(value: object) -> object:
    return value.copy() if isinstance(value, np.ndarray) else value  # pyright: ignore
