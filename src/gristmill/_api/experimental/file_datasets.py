"""Datasets that read files sequentially."""

import os
from collections.abc import Sequence
from typing import Any

from gristmill._api.dataset.iter_dataset import PlannedIterDataset
from gristmill._api.dataset.stream_datasets import InterleaveIterDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._data.sources.file_streams import ParquetStream, TFRecordStream
from gristmill._io.paths import find_files
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.stream import RecordStreamNode
from gristmill.errors import PlanError
from gristmill.options import StorageOptions

_CYCLE_LENGTH = 16


class TFRecordIterDataset(PlannedIterDataset[bytes]):
    """Yields the records of a TFRecord file as bytes, in the order of the file.

    Checksums are verified. No index is needed, and restoring a state does not read the records
    before it. `TFRecordSource` reads the same records in any order, and in workers.

    >>> import pathlib, tempfile
    >>> file = bytes.fromhex("0500000000000000eab2043e68656c6c6fbb1f1c19")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "words.tfrecord")
    ...     _ = path.write_bytes(file)
    ...     list(TFRecordIterDataset(path))
    [b'hello']

    Args:
        path: The path or URL of one file.
        storage: How to read a file on another machine.

    Raises:
        PlanError: `path` is a pattern that matches several files.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        site = call_site()
        nodes = [
            RecordStreamNode(site=site, stream=TFRecordStream(ref))
            for ref in find_files(path, storage)
        ]
        if len(nodes) > 1:
            raise PlanError(f"`path` must be one file, and {path!r} matches {len(nodes)}.")
        super().__init__(nodes[0], ())


class ParquetIterDataset(PlannedIterDataset[dict[str, Any]]):
    """Yields the rows of Parquet files as dicts.

    The rows of one file come in order. Of several files it yields one row of each in turn, from at
    most 16 open files; when one ends, the next is opened. `ParquetSource` reads rows in any order,
    and in workers.

    >>> import pathlib, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "numbers.parquet")
    ...     pq.write_table(pa.table({"x": [1, 2]}), path)
    ...     [int(row["x"]) for row in ParquetIterDataset(path)]
    [1, 2]

    Args:
        path: One path, pattern or URL, or several.
        storage: How to read files on another machine.
        **read_kwargs: Arguments of `pyarrow.parquet.ParquetFile`.
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
        super().__init__(self._build_node(), ())

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this object to some of the files. Call it before iterating.

        Args:
            sl: The slice of the files to keep.
            sequential_slice: Ignored; it exists for compatibility.
        """
        del sequential_slice
        self._refs = self._refs[sl]
        self._node = self._build_node()

    def _build_node(self) -> Node:
        nodes = [
            RecordStreamNode(site=self._site, stream=ParquetStream(ref, self._options))
            for ref in self._refs
        ]
        if len(nodes) == 1:
            return nodes[0]
        files = [PlannedIterDataset[dict[str, Any]](node, ()) for node in nodes]
        return plan_of(InterleaveIterDataset(files, cycle_length=_CYCLE_LENGTH))
