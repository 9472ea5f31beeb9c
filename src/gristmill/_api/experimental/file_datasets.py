"""Datasets that read files sequentially."""

import os
from collections.abc import Sequence
from typing import Any

from gristmill._api.dataset.iter_dataset import PlannedIterDataset
from gristmill._api.dataset.stream_datasets import InterleaveIterDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._data.sampling.shard_options import as_shard
from gristmill._data.sources.file_streams import ParquetStream, TFRecordStream
from gristmill._data.sources.records.tar.stream import TarStream
from gristmill._io.paths import Paths, find_file, find_files
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.stream import CustomStreamNode, RecordStreamNode
from gristmill.errors import PlanError
from gristmill.options import NoSharding, ShardOptions, StorageOptions

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
        self._path = path  # named as in Grain, for subclasses that users define
        site = call_site()
        if self._has_own_iter:  # which may read files that this class cannot find
            node = CustomStreamNode(site=site, dataset=self, name=type(self).__name__)
        else:
            node = RecordStreamNode(site=site, stream=TFRecordStream(find_file(path, storage)))
        super().__init__(node, ())


class TarIterDataset(PlannedIterDataset[dict[str, Any]]):
    """Yields the records of WebDataset shards as dicts, one shard after the other.

    Records are those of `TarSource`, in the order of the files. The first record needs only the
    first bytes of the first shard: nothing is indexed, and of files in a store, a few megabytes are
    requested ahead. A state is the number of a shard and a byte in it; restoring it reads nothing
    before that byte. Shuffle with `shuffle(buffer_size, seed)`, and the order of the shards before
    you pass them; `TarSource` has random access instead, for workers and exact global shuffling.

    >>> import io, tarfile, tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".tar") as shard:
    ...     with tarfile.open(shard.name, "w") as archive:
    ...         for name in ["cat.jpg", "cat.cls", "dog.jpg", "dog.cls"]:
    ...             archive.addfile(tarfile.TarInfo(name))
    ...     [record["__key__"] for record in TarIterDataset(shard.name)]
    ['cat', 'dog']

    Args:
        paths: A path, a URL, a pattern with `*`, ranges in braces, or a list of them. Compressed
            archives are decompressed as a whole before they are read.
        shard_options: Which of the files to read: every n-th, from the one of this shard on. A
            state restores with the same shard options.
        storage: How to read files on another machine.

    Raises:
        PlanError: There are fewer files than shards.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        shard_options: ShardOptions | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        shard = as_shard("shard_options", shard_options or NoSharding())
        refs = find_files(paths, storage)
        if len(refs) < shard.shard_count:
            raise PlanError(
                f"`paths` must be at least as many files as there are shards: {len(refs)} files "
                f"cannot be read by {shard.shard_count} processes. Write smaller files, or use "
                "`TarSource`, which shards by records."
            )
        if shard.drop_remainder:
            refs = refs[: len(refs) // shard.shard_count * shard.shard_count]
        stream = TarStream(refs[shard.shard_index :: shard.shard_count])
        super().__init__(RecordStreamNode(site=call_site(), stream=stream), ())


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

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If a path is not a path.
        MissingExtraError: When the first element is read, if pyarrow is not installed.
        FormatError: When a file is read, if it is not a Parquet file.
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
