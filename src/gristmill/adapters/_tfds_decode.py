"""Records of a TFDS dataset out of their bytes, by TFDS or, to the same values, by the block."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from gristmill._example import (
    BYTES,
    FLOATS,
    INTEGERS,
    Found,
    find_features,
    take_floats,
    take_integers,
)
from gristmill.adapters._png import decode_pngs
from gristmill.adapters._tfds_layout import PICTURE, TEXT, Layout, Leaf
from gristmill.types import Element, Indices

_CHUNK_BYTES, _LEAST_CHUNK = 512 * 1024, 64
"""Records are decoded together up to so many bytes, or so many."""

_FEW = 8
"""Up to here TFDS is faster one by one: a block takes many calls of NumPy, however short it is."""

Blame = Callable[[int, Exception], Exception]
"""Gives the error to raise for one of the records, by its place among those given."""


@final
class Features:
    """TFDS's own features, which a process that has no need of them never loads.

    A worker that decodes nothing but plain records is spared the import of TFDS.
    """

    def __init__(self, features: Any) -> None:
        self._features = features
        self._pickled: bytes | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether TFDS has been imported for them already, which takes a second or two."""
        return self._features is not None

    def decode(self, record: bytes) -> Any:
        """Give a record as TFDS's data sources do."""
        return self._load().deserialize_example_np(record)

    def decode_picture(self, path: Sequence[str], data: bytes) -> Any:
        """Give one picture of a record as TFDS's data sources do."""
        feature = self._load()
        for name in path:
            feature = feature[name]
        return feature.decode_example_np(data)

    def _load(self) -> Any:
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
class Decoded:
    """Records as columns, one for each leaf, but for those that do not go into them."""

    def __init__(self, columns: list[NDArray[Any]], count: int) -> None:
        self.columns = columns
        self.count = count
        self.misfits: dict[int, list[Any]] = {}
        """The values of such a record, by its place."""

    def rows(self, layout: Layout) -> list[Element]:
        """Give the records one by one."""
        made: list[Element] = []
        for place in range(self.count):
            values = self.misfits.get(place)
            if values is None:
                values = [_own(column[place]) for column in self.columns]
            made.append(layout.build(values))
        return made


@final
class Decoder:
    """Makes records of bytes."""

    def __init__(self, layout: Layout, features: Features) -> None:
        self.layout = layout
        self._features = features

    def decode(self, records: Sequence[bytes], blame: Blame) -> Decoded:
        """Decode many records; one that cannot be is an error, which `blame` gives."""
        leaves, count = self.layout.leaves, len(records)
        if not self.layout.is_columnar:
            made = Decoded([], count)
            for place, record in enumerate(records):
                made.misfits[place] = self._decode_one(place, record, blame)
            return made
        is_done = np.zeros(count, np.bool_)
        made = Decoded([_empty(leaf, count) for leaf in leaves], count)
        if self.layout.is_plain and not (count < _FEW and self._features.is_loaded):
            for part in _chunks(records):
                columns = [column[part] for column in made.columns]
                is_done[part] = self._decode_plain(records[part], columns)
        for place in np.flatnonzero(~is_done).tolist():
            values = self._decode_one(place, records[place], blame)
            if all(leaf.fits(value) for leaf, value in zip(leaves, values, strict=True)):
                for column, value in zip(made.columns, values, strict=True):
                    column[place] = value
            else:
                made.misfits[place] = values
        return made

    def _decode_one(self, place: int, record: bytes, blame: Blame) -> list[Any]:
        try:
            whole = self._features.decode(record)
            return [leaf.typed(_at(whole, leaf.path)) for leaf in self.layout.leaves]
        except Exception as error:
            raise blame(place, error) from error

    def _decode_plain(
        self, records: Sequence[bytes], columns: list[NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Fill the columns, and tell for which records that was possible."""
        leaves = self.layout.leaves
        found = find_features(records, [leaf.key for leaf in leaves])
        is_done = found.is_whole
        for number, leaf in enumerate(leaves):
            is_done &= found.kinds[:, number] == _stored_as(leaf)
        for number, (leaf, column) in enumerate(zip(leaves, columns, strict=True)):
            rows = np.flatnonzero(is_done)
            if len(rows):
                values, is_right = self._take(leaf, found, rows, number)
                column[rows if len(rows) < len(column) else ...] = values
                is_done[rows] = is_right
        return is_done

    def _take(
        self, leaf: Leaf, found: Found, rows: Indices, number: int
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Give the values of a leaf, and which of them are so."""
        pieces = found.pieces(rows, number)
        if leaf.kind == TEXT:
            texts = np.empty(len(pieces), object)
            texts[:] = pieces
            return texts, np.ones(len(pieces), np.bool_)
        shape, dtype = cast("tuple[int, ...]", leaf.shape), cast("np.dtype[Any]", leaf.dtype)
        if leaf.kind == PICTURE:
            return self._pictures(leaf, pieces)
        return (take_floats if dtype.kind == "f" else take_integers)(pieces, shape, dtype)

    def _pictures(self, leaf: Leaf, pieces: list[bytes]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Decode pictures together where they are PNG and small, else one by one."""
        made, is_done = decode_pngs(pieces, cast("tuple[int, int, int]", leaf.shape))
        for place in np.flatnonzero(~is_done).tolist():
            try:
                value = self._features.decode_picture(leaf.path, pieces[place])
            except Exception:
                continue  # decoding the whole record tells
            if leaf.fits(value):
                made[place] = value
                is_done[place] = True
        return made, is_done


def _chunks(records: Sequence[bytes]) -> Iterator[slice]:
    """Give parts of a block whose bytes the processor can keep at hand."""
    total = sum(map(len, records))
    size = max(_LEAST_CHUNK, len(records) * _CHUNK_BYTES // max(1, total))
    for start in range(0, len(records), size):
        yield slice(start, start + size)


def _stored_as(leaf: Leaf) -> int:
    if leaf.kind in (TEXT, PICTURE) or leaf.dtype is None:
        return BYTES
    return FLOATS if leaf.dtype.kind == "f" else INTEGERS


def _empty(leaf: Leaf, count: int) -> NDArray[Any]:
    if leaf.dtype is None or leaf.shape is None:
        return np.empty(count, object)
    return np.empty((count, *leaf.shape), leaf.dtype)


def _at(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value  # pyright: ignore
