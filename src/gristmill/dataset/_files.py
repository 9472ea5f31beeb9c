"""Datasets that read files from front to back."""

import os
from collections.abc import Sequence
from typing import Any

from gristmill._site import call_site
from gristmill.dataset._iter import PlannedIterDataset
from gristmill.dataset._streams import InterleaveIterDataset
from gristmill.errors import PlanError
from gristmill.files import find_files
from gristmill.options import StorageOptions
from gristmill.plan import Node, RecordStreamNode
from gristmill.sources import ParquetStream, TFRecordStream

_CYCLE_LENGTH = 16


class TFRecordIterDataset(PlannedIterDataset[bytes]):
    """The records of a TFRecord file, as bytes, each with its checksum checked.

    It needs no index. `TFRecordSource` gives the same records in any order, and in workers.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        site = call_site()
        nodes = [
            RecordStreamNode(site=site, parents=(), stream=TFRecordStream(ref))
            for ref in find_files(path, storage)
        ]
        if len(nodes) > 1:
            raise PlanError(f"`path` must be one file, and {path!r} matches {len(nodes)}.")
        super().__init__(nodes[0], ())


class ParquetIterDataset(PlannedIterDataset[dict[str, Any]]):
    """The rows of a Parquet file, as dicts; of several files one row of each in turn.

    At most 16 files are open at a time: where one ends, the next begins. `ParquetSource` gives
    rows in any order, and in workers.

    Args:
        path: One path, pattern or address, or several.
        **read_kwargs: What `pyarrow.parquet.ParquetFile` takes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        storage: StorageOptions | None = None,
        **read_kwargs: Any,
    ) -> None:
        self._refs = find_files(path, storage)
        self._options = read_kwargs
        self._site = call_site()
        super().__init__(self._plan(), ())

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep only some of the files. It changes this object: call it before it is used."""
        del sequential_slice  # how Grain deals records to workers: nothing to change here
        self._refs = self._refs[sl]
        self._node = self._plan()

    def _plan(self) -> Node:
        nodes = [
            RecordStreamNode(site=self._site, parents=(), stream=ParquetStream(ref, self._options))
            for ref in self._refs
        ]
        if len(nodes) == 1:
            return nodes[0]
        files = [PlannedIterDataset[Any](node, ()) for node in nodes]
        return InterleaveIterDataset(files, cycle_length=_CYCLE_LENGTH).node
