"""Sources over files that each hold arrays as they lie in memory."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, SupportsIndex, TypeAlias, cast

import numpy as np

from gristmill._check import as_kind
from gristmill._columns import Columns, is_columnar, split_rows
from gristmill.errors import FormatError, PlanError
from gristmill.files import File, FileRef, OpenFiles, Paths, find_files, tell_files
from gristmill.options import StorageOptions
from gristmill.sources._raw_array import RawArray, RawColumn
from gristmill.types import Element, Span, Tree

Found: TypeAlias = RawArray | dict[str, RawArray]
"""What is in a file: an array, or several by name."""

_MOST_TOLD = 2
"""Arrays named in a `repr`; the others are counted."""


class RawSource(ABC):
    """Items of one array, or dicts of items of several, that lie in files."""

    def __init__(
        self, paths: Paths | Mapping[str, Paths], *, storage: StorageOptions | None = None
    ) -> None:
        self._groups: dict[str | None, tuple[FileRef, ...]] = {}
        """The files of each array by its name, or those of the only one."""
        if isinstance(paths, Mapping):
            for name, some in paths.items():
                as_kind("paths", name, str, remedy="Name each array with text.")
                self._groups[name] = find_files(some, storage)
            if not self._groups:
                raise PlanError("`paths` must name at least one array, got an empty dict.")
        else:
            self._groups[None] = find_files(paths, storage)
        self._known: RawColumn | dict[str, RawColumn] | None = None
        self._lock = threading.Lock()

    @staticmethod
    @abstractmethod
    def _find_arrays(file: File) -> Found:
        """Read from the header of a file where its array lies, or its arrays by name."""

    @property
    def is_columnar(self) -> bool:
        """Whether the loader takes whole columns: numbers and times; else it takes records."""
        return is_columnar(self._as_tree([np.empty(0, column.dtype) for column in self._columns]))

    def read_columns(self, indices: Span) -> Columns:
        """Give many records as columns; of an array in one file on this machine, without a copy."""
        arrays = [column.as_one() for column in self._columns]
        if any(array is None for array in arrays):
            taken = [column.take(indices) for column in self._columns]
            return Columns.of(self._as_tree(taken), range(len(indices)))
        self._check(indices)
        return Columns.of(self._as_tree(arrays), indices)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: SupportsIndex) -> Element:
        number = index.__index__()
        return self._as_tree([column.item(number) for column in self._columns])

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = np.asarray(indices, dtype=np.int64)
        return split_rows(self._as_tree([column.take(span) for column in self._columns]), len(span))

    def __repr__(self) -> str:  # goes into checkpoints: no folder, which may be another
        words = [
            tell_files(refs) if name is None else f"{name}: {tell_files(refs)}"
            for name, refs in list(self._groups.items())[:_MOST_TOLD]
        ]
        if len(self._groups) > _MOST_TOLD:
            words.append(f"<{len(self._groups)} arrays>")
        return f"{type(self).__name__}({', '.join(words)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def _columns(self) -> list[RawColumn]:
        known = self._load()
        return list(known.values()) if isinstance(known, dict) else [known]

    def _as_tree(self, leaves: Sequence[Any]) -> Tree:
        """Give one leaf for each column in the shape of a record."""
        known = self._load()
        return dict(zip(known, leaves, strict=True)) if isinstance(known, dict) else leaves[0]

    def _check(self, indices: Span) -> None:
        if len(indices):
            ends = (indices[0], indices[-1]) if isinstance(indices, range) else indices
            for index in (int(np.min(ends)), int(np.max(ends))):
                if not 0 <= index < len(self):
                    raise IndexError(f"`index` must be in [0, {len(self)}), got {index}.")

    def _load(self) -> RawColumn | dict[str, RawColumn]:
        if self._known is None:
            with self._lock:  # one thread reads the headers, the others wait for it
                if self._known is None:
                    self._known = self._make()
        return self._known

    def _make(self) -> RawColumn | dict[str, RawColumn]:
        files = OpenFiles([ref for refs in self._groups.values() for ref in refs])
        found = _each(self._find_arrays, files)
        if None in self._groups:
            return _only_group(files, found)
        columns: dict[str, RawColumn] = {}
        first = 0
        for name, refs in cast("dict[str, tuple[FileRef, ...]]", self._groups).items():
            numbers = range(first, first + len(refs))
            columns[name] = RawColumn(files, numbers, _single(files, numbers, found))
            first = numbers.stop
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name!r}: {len(column)}" for name, column in columns.items())
            raise PlanError(f"The arrays in `paths` must be of one length, got {lengths}.")
        return columns


def _each(find: Callable[[File], Found], files: OpenFiles) -> list[Found]:
    """Look into each file; into many at a time in a store, where that takes a while."""

    def find_in(number: int) -> Found:
        return find(files[number])

    numbers = range(len(files))
    if len(files) == 1 or all(ref.is_local for ref in files.refs):
        return list(map(find_in, numbers))
    with ThreadPoolExecutor(min(files.refs[0].storage.num_parallel, len(files))) as pool:
        return list(pool.map(find_in, numbers))


def _only_group(files: OpenFiles, found: list[Found]) -> RawColumn | dict[str, RawColumn]:
    numbers = range(len(files))
    first = found[0]
    if isinstance(first, RawArray):
        return RawColumn(files, numbers, _single(files, numbers, found))
    for number, one in enumerate(found):
        names = set(one) if isinstance(one, dict) else set[str]()
        if names != set(first):
            raise FormatError(
                f"It holds {_listed(one)}, and the first file {_listed(first)}. All files of one "
                "source must hold arrays of the same names.",
                path=files.refs[number].path,
            )
    members = cast("list[dict[str, RawArray]]", found)
    return {name: RawColumn(files, numbers, [one[name] for one in members]) for name in first}


def _single(files: OpenFiles, numbers: range, found: list[Found]) -> list[RawArray]:
    raws: list[RawArray] = []
    for number in numbers:
        one = found[number]
        if isinstance(one, dict):
            raise FormatError(
                f"It holds {_listed(one)}, and one array is expected here. Save each in a file "
                "of its own, or pass such files alone and without names.",
                path=files.refs[number].path,
            )
        raws.append(one)
    return raws


def _listed(found: Found) -> str:
    if isinstance(found, RawArray):
        return "a single array"
    return f"the named arrays {', '.join(map(repr, found))}"
