"""The reader of a dataset with a cache, which computes and stores what is not stored yet."""

import importlib
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._base.log_once import log_once
from gristmill._engine.access.context import ReadContext, Reader, result_at
from gristmill._engine.access.records import as_range
from gristmill._engine.blocks.block import BlockResult
from gristmill._plan.nodes.cached import StoredNode
from gristmill.errors import FileError
from gristmill.types import Element, Indices, Span

if TYPE_CHECKING:
    from gristmill._data.element_store.store import ElementStore


def stored_reader(node: StoredNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a dataset with a cache."""
    return _StoredReader(node, read_parent).read


_STORES: dict[tuple[int, int], "ElementStore | None"] = {}
"""The open stores, by the ids of their nodes and of the process; `None` if one cannot be opened."""

_LOCK = threading.Lock()


@final
class _StoredReader:
    """Reads elements from the store of a plan, which each process opens once."""

    def __init__(self, node: StoredNode, read_parent: Reader) -> None:
        self._node = node
        self._length = node.length()
        self._read_parent = read_parent

    def read(self, indices: Span) -> BlockResult:
        store = self._store()
        if store is None:
            return self._read_parent(indices)
        keys = as_indices(as_indices(indices) % self._length)
        try:
            is_stored = store.find(keys)
            if is_stored.all():
                return result_at(indices, store.read(keys), None)
            return self._compute(store, indices, keys, is_stored)
        except FileError as error:
            return result_at(indices[:0], [], error)

    def _compute(
        self, store: "ElementStore", indices: Span, keys: Indices, is_stored: Indices
    ) -> BlockResult:
        """Compute the elements that are not stored, and put all in order, up to an error."""
        missing = np.flatnonzero(~is_stored)
        span = as_range(keys[missing])
        result = self._read_parent(keys[missing] if span is None else span)
        computed = result.block.rows()
        error, end = result.error, len(keys)
        if error is not None:
            end = int(missing[len(computed)])
        bad_records = result.bad_records
        # The next epoch is to list what was left out, so it computes these elements again.
        whole = sorted(set(range(len(computed))) - {bad.row for bad in bad_records})
        try:
            store.write(keys[missing[whole]], [computed[row] for row in whole])
        except Exception as problem:  # an element that cannot be stored
            return result_at(indices[:0], [], problem)
        if len(missing) == len(keys):
            return result_at(indices, computed, error, bad_records)
        rows: list[Element] = [None] * len(keys)
        stored = np.flatnonzero(is_stored)
        found = store.read(keys[stored])
        for row, element in zip(
            stored.tolist(), found if isinstance(found, list) else found.rows(), strict=True
        ):
            rows[row] = element
        for row, element in zip(missing.tolist(), computed, strict=False):
            rows[row] = element
        bad_records = [bad.at(int(missing[bad.row])) for bad in bad_records]
        return result_at(indices, rows[:end], error, bad_records)

    def _store(self) -> "ElementStore | None":
        """Return the store. It stays open as long as the node exists, over many iterators."""
        key = id(self._node), os.getpid()  # locks do not survive a fork
        with _LOCK:
            if key not in _STORES:
                _STORES[key] = self._open()
                weakref.finalize(self._node, _STORES.pop, key, None)
            return _STORES[key]

    def _open(self) -> "ElementStore | None":
        node = self._node
        if node.memory is not None:
            return node.memory.open(self._length, node.max_bytes)
        try:
            # Imported here, because few plans have a cache.
            stores = importlib.import_module("gristmill._data.element_store.folder")
            folder = Path(node.folder or ".")
            return stores.open_store(folder, node.fingerprint, self._length, node.max_bytes)
        except OSError as error:
            log_once(
                f"element-store {node.folder}",
                "The cache %s cannot be opened: %s. All elements are computed.",
                node.folder,
                str(error.strerror or error).rstrip("."),
            )
            return None
