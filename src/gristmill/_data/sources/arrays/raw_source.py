"""A base class for sources over array files that need no parsing."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import SupportsIndex, TypeAlias, cast

import numpy as np

from gristmill._base.checks import as_kind
from gristmill._base.indices import check_indices
from gristmill._base.trees.columns import Columns, is_columnar, split_rows
from gristmill._data.sources.arrays.raw_array import RawArray, RawColumn
from gristmill._io.file import File, FileRef, describe_files
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import Paths, find_files
from gristmill.errors import FormatError, PlanError
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, Element, Span, Tree

FileArrays: TypeAlias = RawArray | dict[str, RawArray]
"""The content of a file: one array, or several by name."""

_MAX_NAMES_IN_REPR = 2
"""Arrays that a `repr` names; it counts the others."""


class RawSource(ABC):
    """Random access to the items of one array, or to dicts of the items of several.

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them; or a dict of these, by the
            name of the array.
        storage: How files in a store are read.
    """

    def __init__(
        self, paths: Paths | Mapping[str, Paths], *, storage: StorageOptions | None = None
    ) -> None:
        self._groups: dict[str | None, tuple[FileRef, ...]] = {}
        """The files of each array, by its name; `None` where `paths` has no names."""
        if isinstance(paths, Mapping):
            for name, paths_of_array in paths.items():
                as_kind("paths", name, str, remedy="Name each array with a string.")
                self._groups[name] = find_files(paths_of_array, storage)
            if not self._groups:
                raise PlanError("`paths` must name at least one array, got an empty dict.")
        else:
            self._groups[None] = find_files(paths, storage)
        self._loaded: RawColumn | dict[str, RawColumn] | None = None
        self._lock = threading.Lock()

    @staticmethod
    @abstractmethod
    def _find_arrays(file: File) -> FileArrays:
        """Read from the headers of a file where it stores its array, or its arrays by name."""

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        return is_columnar(self._as_tree([np.empty(0, column.dtype) for column in self._columns]))

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns, which refer to the maps of single local files.

        Args:
            indices: The records, all of them in bounds.
        """
        arrays = [column.as_single_array() for column in self._columns]
        if any(array is None for array in arrays):
            taken = [column.take(indices) for column in self._columns]
            return Columns.of(self._as_tree(taken), range(len(indices)))
        check_indices(indices, len(self))
        # One function for each file, found once: they are called before and after each batch.
        checks = [check for column in self._columns for check in column.change_checks()]
        check = checks[0] if len(checks) == 1 else partial(_call_all, checks)
        return Columns.of(self._as_tree(arrays), indices, check=check if checks else None)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: SupportsIndex) -> Element:
        number = index.__index__()
        return self._as_tree([column.item(number) for column in self._columns])

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = np.asarray(indices, dtype=np.int64)
        return split_rows(self._as_tree([column.take(span) for column in self._columns]), len(span))

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        groups = [
            describe_files(refs) if name is None else f"{name}: {describe_files(refs)}"
            for name, refs in list(self._groups.items())[:_MAX_NAMES_IN_REPR]
        ]
        if len(self._groups) > _MAX_NAMES_IN_REPR:
            groups.append(f"<{len(self._groups)} arrays>")
        return f"{type(self).__name__}({', '.join(groups)})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def _columns(self) -> list[RawColumn]:
        loaded = self._load()
        return list(loaded.values()) if isinstance(loaded, dict) else [loaded]

    def _as_tree(self, leaves: Sequence[AnyArray | Element]) -> Tree:
        """Arrange one leaf per column in the structure of a record."""
        loaded = self._load()
        return dict(zip(loaded, leaves, strict=True)) if isinstance(loaded, dict) else leaves[0]

    def _load(self) -> RawColumn | dict[str, RawColumn]:
        if self._loaded is None:
            with self._lock:  # one thread reads the headers while the others wait
                if self._loaded is None:
                    self._loaded = self._find_columns()
        return self._loaded

    def _find_columns(self) -> RawColumn | dict[str, RawColumn]:
        files = OpenFiles([ref for refs in self._groups.values() for ref in refs])
        arrays = _find_in_each(self._find_arrays, files)
        if None in self._groups:
            return _join_unnamed(files, arrays)
        columns: dict[str, RawColumn] = {}
        first = 0
        for name, refs in cast("dict[str, tuple[FileRef, ...]]", self._groups).items():
            numbers = range(first, first + len(refs))
            columns[name] = RawColumn(files, numbers, _expect_single(files, numbers, arrays))
            first = numbers.stop
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name!r}: {len(column)}" for name, column in columns.items())
            raise PlanError(f"The arrays in `paths` must have the same length, got {lengths}.")
        return columns


def _find_in_each(find: Callable[[File], FileArrays], files: OpenFiles) -> list[FileArrays]:
    """Find the arrays of each file; in parallel for a store, where each request takes a while."""

    def find_in(number: int) -> FileArrays:
        return find(files[number])

    numbers = range(len(files))
    if len(files) == 1 or all(ref.is_local for ref in files.refs):
        return list(map(find_in, numbers))
    with ThreadPoolExecutor(min(files.refs[0].storage.num_parallel, len(files))) as pool:
        return list(pool.map(find_in, numbers))


def _join_unnamed(files: OpenFiles, arrays: list[FileArrays]) -> RawColumn | dict[str, RawColumn]:
    """Concatenate the arrays of files that the user has not named."""
    numbers = range(len(files))
    first = arrays[0]
    if isinstance(first, RawArray):
        return RawColumn(files, numbers, _expect_single(files, numbers, arrays))
    for number, content in enumerate(arrays):
        names = set(content) if isinstance(content, dict) else set[str]()
        if names != set(first):
            raise FormatError(
                f"The file holds {_describe(content)}, but the first file holds "
                f"{_describe(first)}. All files of a source must hold arrays of the same names.",
                path=files.refs[number].path,
            )
    named = cast("list[dict[str, RawArray]]", arrays)
    return {name: RawColumn(files, numbers, [content[name] for content in named]) for name in first}


def _expect_single(files: OpenFiles, numbers: range, arrays: list[FileArrays]) -> list[RawArray]:
    """Return the arrays of some files, or raise if one of them holds named arrays."""
    single: list[RawArray] = []
    for number in numbers:
        content = arrays[number]
        if isinstance(content, dict):
            raise FormatError(
                f"The file holds {_describe(content)}, but a single array is expected here. Save "
                "each array in a file of its own, or pass only such files, and without names.",
                path=files.refs[number].path,
            )
        single.append(content)
    return single


def _describe(content: FileArrays) -> str:
    if isinstance(content, RawArray):
        return "a single array"
    return f"the named arrays {', '.join(map(repr, content))}"


def _call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()
