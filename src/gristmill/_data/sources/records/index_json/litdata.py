"""A source over the chunks of LitData, which `index.json` lists.

count    4 bytes: the number of items
offsets  4 per item, and 4 for the end of the last one
items    the sizes of the leaves, 4 bytes each; then all leaves

Chunks of dicts of plain values hold only the count and the offsets, followed by an Arrow file with
its length and a magic string. Chunks of compressed groups of items are in `litdata_items.py`.
"""

import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, final

import numpy as np

from gristmill._base.trees.columns import Columns
from gristmill._data.sources.record_locator import RecordLocator, gather
from gristmill._data.sources.records.index_json.litdata_items import ItemFiles
from gristmill._data.sources.records.index_json.litdata_values import (
    Decode,
    ItemTree,
    find_decoder,
    find_tree,
)
from gristmill._data.sources.records.index_json.shard_index import (
    INDEX_NAME,
    check_shard,
    read_shard_index,
)
from gristmill._data.sources.tables.arrow_ipc import CACHE_BYTES, ArrowFiles
from gristmill._data.sources.tables.table import TableSource
from gristmill._io.decompress import DecompressedFile, find_compression
from gristmill._io.file import File, FileRef
from gristmill._io.open_files import OpenFiles, open_file
from gristmill._io.part_of_file import PartOfFile
from gristmill._io.paths import find_file, find_named
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span, Tree

_WRITTEN_WITH = ("PyTreeLoader", "TokensLoader")
_COMPRESSED_SUFFIX = ".zstd.bin"
_ARROW_MAGIC = b"LDARW01\0"
_ARROW_TAIL_BYTES = 4 + len(_ARROW_MAGIC)


class _Form(NamedTuple):
    """How an item is stored."""

    kinds: list[str]
    """The kinds of the leaves. Those of an Arrow file are not used."""
    tree: ItemTree
    has_sizes: bool
    """Whether the sizes of the leaves precede them."""
    are_items_compressed: bool


@final
class LitDataSource:
    """Random access to the items of a dataset that LitData has written.

    Images, sounds and other media stay encoded, for `DecodeImage` and the like; tensors are arrays.
    The items of a dataset of tokens are the documents. Compressed chunks need `gristmill[zstd]`,
    and chunks of dicts of plain values, which newer versions of LitData store as Arrow files,
    `gristmill[parquet]`. Pickles are an error, because unpickling can run any code.

    >>> import json, struct, tempfile
    >>> config = {"compression": None, "data_format": ["int"], "item_loader": "PyTreeLoader",
    ...           "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]'}
    >>> chunks = [{"chunk_size": 1, "filename": "0.bin"}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/index.json", "w") as file:
    ...         json.dump({"chunks": chunks, "config": config}, file)
    ...     with open(f"{folder}/0.bin", "wb") as file:
    ...         _ = file.write(struct.pack("<4Iq", 1, 12, 24, 8, 7))
    ...     LitDataSource(folder)[0]
    7

    Args:
        path: The folder, or its URL, that contains `index.json` and the chunks.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If the folder has no such index.
        FormatError: When records are first read, if the chunks are encrypted or of another form.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        folder = os.fspath(path).rstrip("/").removesuffix(f"/{INDEX_NAME}")
        self._index = find_file(f"{folder}/{INDEX_NAME}", storage)
        self._folder = self._index.path.removesuffix(f"/{INDEX_NAME}")
        self._loaded: _Items | TableSource | None = None
        self._lock = threading.Lock()

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        items = self._load()
        return isinstance(items, TableSource) and items.is_columnar

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns, if `is_columnar`.

        Args:
            indices: The indices of the records.
        """
        items = self._load()
        assert isinstance(items, TableSource)
        return items.read_columns(indices)

    def __len__(self) -> int:
        return len(self._load())

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self._load()[index]

    def __getitems__(self, indices: Sequence[int] | Indices) -> list[Element]:
        return self._load().__getitems__(indices)

    def __getstate__(self) -> dict[str, object]:
        excluded = ("_lock", "_loaded")
        return {name: value for name, value in vars(self).items() if name not in excluded}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _loaded=None)

    def __repr__(self) -> str:  # part of checkpoints: without the folders above, as data may move
        return f"LitDataSource({self._index.address.rsplit('/', 2)[-2]!r})"

    def _load(self) -> "_Items | TableSource":
        if self._loaded is None:
            with self._lock:  # one thread reads the index while the others wait
                if self._loaded is None:
                    self._loaded = self._open()
        return self._loaded

    def _open(self) -> "_Items | TableSource":
        chunks, form = read_shard_index(self._index, "LitData chunks", _check_index)
        names = [self._find_chunk(chunk["filename"]) for chunk in chunks]
        refs = find_named(self._folder, names, self._index.storage)
        counts = [chunk["chunk_size"] for chunk in chunks]
        if not _holds_table(_open_chunk(refs[0])):
            return _Items(refs, counts, form, self._index.path)
        parts = [replace(ref, is_local=False) for ref in refs]  # nothing of them is mapped
        open_part = partial(_open_table, is_local=refs[0].is_local)
        table = TableSource(
            ArrowFiles(parts, None, open_ref=open_part), description="", cache_bytes=CACHE_BYTES
        )
        if len(table) != sum(counts):
            raise CorruptFileError(
                f"The chunks hold {len(table):,} items where the index announces {sum(counts):,}. "
                "Copy them again.",
                path=self._index.path,
            )
        return table

    def _find_chunk(self, name: str) -> str:
        """Return the name of a chunk. LitData decompresses those of a local folder in place."""
        raw = name.removesuffix(_COMPRESSED_SUFFIX) + ".bin"
        is_there = self._index.is_local and Path(self._folder, raw).exists()
        return raw if name.endswith(_COMPRESSED_SUFFIX) and is_there else name


@final
class _Items:
    """The items of chunks that store one after the other."""

    def __init__(
        self, refs: Sequence[FileRef], counts: Sequence[int], form: _Form, path: str
    ) -> None:
        self._locator = RecordLocator(counts)
        self._form = form
        num_leaves = len(form.kinds) if form.has_sizes else 1
        if form.tree.num_leaves != num_leaves or not form.kinds:
            raise FormatError(
                f"The index describes items of {form.tree.num_leaves} leaves, but lists the kinds "
                f"of {len(form.kinds)}. Copy the folder again.",
                path=path,
            )
        self._decoders = [_decoder(kind, path) for kind in form.kinds]
        files = OpenFiles(refs, _open_chunk)
        self._files = ItemFiles(files, counts, are_items_compressed=form.are_items_compressed)

    def __len__(self) -> int:
        return len(self._locator)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Sequence[int] | Indices) -> list[Element]:
        return gather(self._locator, indices, self._read)

    def _read(self, number: int, within: Indices) -> list[Element]:
        records: list[Element] = []
        try:
            items = self._files.read(number, within)
            records.extend(map(self._decode, items))
        except (ValueError, LookupError, ArithmeticError, RecursionError, struct.error) as error:
            if isinstance(error, FileError):
                raise
            raise CorruptFileError(
                f"The item cannot be decoded ({type(error).__name__}: {error}). Copy the chunk "
                "again, or skip such records with `SkipErrors`.",
                path=self._files.path_of(number),
                record=int(within[len(records)]),
            ) from None
        return records

    def _decode(self, item: bytes) -> Tree:
        decoders, build = self._decoders, self._form.tree.build
        if not self._form.has_sizes:
            return build([decoders[0](item)])
        sizes = struct.unpack_from(f"<{len(decoders)}I", item)
        at = 4 * len(sizes)
        if at + sum(sizes) != len(item):
            raise ValueError("the sizes of the leaves do not add up to that of the item")
        leaves: list[Element] = []
        for size, decode in zip(sizes, decoders, strict=True):
            leaves.append(decode(item[at : at + size]))
            at += size
        return build(leaves)


def _decoder(kind: str, path: str) -> Decode:
    decode = find_decoder(kind)
    if decode is None:
        raise FormatError(
            f"A leaf is stored as {kind!r:.100}, which is not read. Write it as an array, bytes, a "
            "string or a number.",
            path=path,
        )
    return decode


def _check_index(index: Any) -> tuple[list[Any], _Form]:
    """Return the chunks that an index lists, and the form of their items."""
    chunks, config = index["chunks"], index["config"]
    for chunk in chunks:
        check_shard(chunk["filename"], chunk["chunk_size"])
    if not chunks:
        raise ValueError("it lists no chunks")
    loader = config.get("item_loader", _WRITTEN_WITH[0])
    if loader not in _WRITTEN_WITH:
        raise FormatError(f"The chunks were written for {loader!r:.100}, which is not read.")
    if config.get("encryption"):
        raise FormatError("The chunks are encrypted, which is not read.")
    return chunks, _Form(
        [str(kind) for kind in config["data_format"]],
        find_tree(config["data_spec"]),
        has_sizes=loader == _WRITTEN_WITH[0],
        are_items_compressed=config.get("compression_level") == "sample",
    )


def _open_chunk(ref: FileRef) -> File:
    """Open a chunk, decompressed if it is compressed as a whole."""
    file = open_file(ref)
    if not ref.name.endswith(_COMPRESSED_SUFFIX):
        return file
    compression = find_compression(file.read_one(0, min(4, ref.size)))
    return file if compression is None else DecompressedFile(file, compression)


def _holds_table(file: File) -> bool:
    size = file.ref.size
    return file.read_one(max(0, size - len(_ARROW_MAGIC)), size) == _ARROW_MAGIC


def _open_table(ref: FileRef, *, is_local: bool) -> File:
    """Open the Arrow file at the end of a chunk."""
    file = _open_chunk(replace(ref, is_local=is_local))
    stop = file.ref.size - _ARROW_TAIL_BYTES
    tail = file.read_one(max(0, stop), file.ref.size)
    num_bytes = int.from_bytes(tail[:4], "little")
    if not tail.endswith(_ARROW_MAGIC) or not 0 < num_bytes <= stop:
        raise CorruptFileError(
            "The chunk has no Arrow file at its end. Copy it again.", path=ref.path
        )
    return PartOfFile(file, stop - num_bytes, stop)
