"""A source over Arrow IPC files: Arrow files, Arrow streams, Feather."""

import mmap
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, final

import numpy as np

from gristmill._data.sources.tables.arrow_messages import Messages, find_messages
from gristmill._data.sources.tables.arrow_values import (
    ArrowArray,
    ArrowSchema,
    ArrowTable,
    ArrowType,
    concatenate,
    dense_of,
    load_pyarrow,
    translate_arrow_errors,
)
from gristmill._data.sources.tables.columns import check_names, select
from gristmill._data.sources.tables.table import TableSource
from gristmill._data.sources.tables.table_files import (
    ChunkSpec,
    TableFiles,
    TableLayout,
    group_chunks,
)
from gristmill._io.file import File, describe_files
from gristmill._io.file_object import as_file_object
from gristmill._io.paths import Paths, find_files
from gristmill.errors import CorruptFileError
from gristmill.options import StorageOptions

_WANTED_BY = "`ArrowSource`"
_FORMAT_NAME = "Arrow file"
_CHUNK_BYTES = 8 * 2**20
"""Record batches smaller than this are read together with their neighbours."""
CACHE_BYTES = 2**30
"""Memory for data that are not just mapped: batches that are compressed or in a store, and columns
of numbers that many batches store."""


@final
class ArrowSource(TableSource):
    """Random access to the rows of Arrow IPC files, streams and Feather files, as dicts.

    Files on this machine are mapped into memory, which all processes share. Record batches that are
    compressed, have dictionaries or are in a store are read on first use, and each process caches
    up to a gigabyte of them. Small record batches are joined and cached too, if all of them fit.

    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.feather
    >>> with tempfile.NamedTemporaryFile(suffix=".feather") as file:
    ...     table = pa.table({"id": [1, 2, 3], "text": ["a", "b", None]})
    ...     pa.feather.write_feather(table, file.name)
    ...     source = ArrowSource(file.name)
    ...     len(source), source[2]
    (3, {'id': np.int64(3), 'text': None})

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. All files must have the same
            columns.
        columns: The names of the columns to read, by default all.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        MissingExtraError: If pyarrow is not installed.
        FormatError: When records are first read, if a file is not an Arrow file or stream.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        load_pyarrow(_WANTED_BY)
        refs = find_files(paths, storage)
        super().__init__(
            ArrowFiles(refs, columns), description=describe_files(refs), cache_bytes=CACHE_BYTES
        )


class _FileDetail(NamedTuple):
    """The messages of a file, and the schema of all its columns."""

    messages: Messages
    schema: ArrowSchema


@final
class ArrowFiles(TableFiles):
    """Arrow files, whose chunks are groups of record batches."""

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._maps: dict[int, Any] = {}

    def read_layout(self) -> TableLayout:
        refs = self.files.refs
        if not refs:  # `datasets` saves no files for a dataset without rows
            return TableLayout(load_pyarrow(_WANTED_BY).schema([]), [], has_nulls=False)
        with ThreadPoolExecutor(min(len(refs), refs[0].storage.num_parallel)) as threads:
            details = list(threads.map(self._read_detail, range(len(refs))))
        schema = select([detail.schema for detail in details], self.columns, refs)
        is_mapped = all(
            ref.is_local and not messages.is_compressed and not messages.dictionaries
            for ref, (messages, _) in zip(refs, details, strict=True)
        )
        sizes = [[stop - start for start, stop in messages.batches] for messages, _ in details]
        # Gathering from many small batches is slow. Joining copies them, so it needs memory.
        max_bytes = 0 if is_mapped and sum(map(sum, sizes)) > CACHE_BYTES else _CHUNK_BYTES
        chunks = [
            chunk
            for number, (messages, _) in enumerate(details)
            for chunk in group_chunks(
                number,
                messages.counts,
                sizes[number],
                max_bytes=max_bytes,
            )
        ]
        has_nulls = any(_has_nulls(detail, schema.names) for detail in details)
        return TableLayout(schema, chunks, has_nulls, details, is_mapped)

    def read_chunk(self, layout: TableLayout, chunk: ChunkSpec) -> list[ArrowArray]:
        detail: _FileDetail = layout.file_details[chunk.file]
        with translate_arrow_errors(self.files.refs[chunk.file].path, _FORMAT_NAME):
            names = layout.schema.names
            if layout.is_mapped:
                self.check_unchanged(chunk.file)  # pages after the end of a file kill the process
                batches = self._map_batches(detail, chunk)
                for batch in batches:
                    for name in names:
                        check_offsets(batch.column(name))
            else:
                batches = self._decode_batches(detail, chunk, names)
                for batch in batches:
                    batch.validate(full=True)
            return [concatenate([batch.column(name) for batch in batches]) for name in names]

    def _map_batches(self, detail: _FileDetail, chunk: ChunkSpec) -> list[ArrowTable]:
        pa = load_pyarrow(_WANTED_BY)
        memory = self._map(chunk.file)
        return [
            pa.ipc.read_record_batch(memory.slice(start, stop - start), detail.schema)
            for start, stop in detail.messages.batches[chunk.first : chunk.stop]
        ]

    def _decode_batches(
        self, detail: _FileDetail, chunk: ChunkSpec, names: Sequence[str]
    ) -> list[ArrowTable]:
        """Read batches as a stream of the schema, the dictionaries and the batches."""
        pa = load_pyarrow(_WANTED_BY)
        messages = detail.messages
        spans = [*messages.dictionaries, *messages.batches[chunk.first : chunk.stop]]
        if messages.is_stream:  # a dictionary applies to the batches after it
            spans = sorted(span for span in spans if span <= spans[-1])
        starts, stops = zip(messages.schema, *spans, strict=True)
        stream = pa.BufferReader(b"".join(self.files[chunk.file].read(starts, stops)))
        fields = [detail.schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return list(pa.ipc.open_stream(stream, options=options))

    def _map(self, number: int) -> Any:
        """Return a pyarrow buffer over the memory map of a file."""
        with self._lock:
            if number not in self._maps:
                with self.files[number].local_path().open("rb") as file:
                    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._maps[number] = load_pyarrow(_WANTED_BY).py_buffer(memory)
            return self._maps[number]

    def _read_detail(self, number: int) -> _FileDetail:
        file = self.files[number]
        messages = find_messages(file)
        pa = load_pyarrow(_WANTED_BY)
        with translate_arrow_errors(file.ref.path, _FORMAT_NAME):
            schema = pa.ipc.read_schema(pa.py_buffer(file.read_one(*messages.schema)))
            check_names(schema.names, file.ref.path)
            num_nodes = sum(_num_nodes(field.type) for field in schema)
            has_dictionary = any(_has_dictionary(field.type) for field in schema)
            is_same = messages.is_stream or not file.ref.is_local or _has_footer(file, schema)
        if (
            not is_same
            or (messages.batches and messages.nulls.shape[1] != num_nodes)
            or (messages.dictionaries and not has_dictionary)
        ):
            raise CorruptFileError(
                "The record batches of the Arrow file do not have the columns of its schema. Copy "
                "or write it again.",
                path=file.ref.path,
            )
        return _FileDetail(messages, schema)


def _has_nulls(detail: _FileDetail, names: Sequence[str]) -> bool:
    """Return whether one of the columns is dense and contains a null."""
    node = 0
    for field in detail.schema:
        width = _num_nodes(field.type)
        is_wanted = field.name in names and dense_of(field.type) is not None
        if is_wanted and detail.messages.nulls[..., node : node + width].any():
            return True
        node += width
    return False


def _num_nodes(arrow_type: ArrowType) -> int:
    """Return the number of arrays that store a column."""
    if isinstance(arrow_type, load_pyarrow(_WANTED_BY).BaseExtensionType):
        return _num_nodes(arrow_type.storage_type)
    return 1 + sum(_num_nodes(arrow_type.field(n).type) for n in range(arrow_type.num_fields))


def _has_footer(file: File, schema: ArrowSchema) -> bool:
    """Return whether pyarrow, which checks a footer as a whole, finds the same schema in it."""
    pa = load_pyarrow(_WANTED_BY)
    return pa.ipc.open_file(pa.PythonFile(as_file_object(file), mode="r")).schema == schema


def _has_dictionary(arrow_type: ArrowType) -> bool:
    """Return whether a column, or an array inside it, is stored with a dictionary."""
    pa = load_pyarrow(_WANTED_BY)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _has_dictionary(arrow_type.storage_type)
    return pa.types.is_dictionary(arrow_type) or any(
        _has_dictionary(arrow_type.field(n).type) for n in range(arrow_type.num_fields)
    )


def check_offsets(array: ArrowArray) -> None:
    """Raise `ValueError` if an offset of an Arrow array points outside of its data.

    pyarrow does not check offsets when it reads values, and a damaged one crashes the process. Its
    full validation also decodes all strings, which reads the whole mapped file; the offsets alone
    are a small fraction of it.

    >>> import pyarrow as pa
    >>> check_offsets(pa.array([["a"], ["b", "c"]]))
    """
    array.validate()  # that the buffers are large enough
    _check_null_count(array)
    types, arrow_type = load_pyarrow(_WANTED_BY).types, array.type
    if not len(array) or dense_of(arrow_type) is not None or types.is_null(arrow_type):
        return
    if isinstance(arrow_type, load_pyarrow(_WANTED_BY).BaseExtensionType):
        check_offsets(array.storage)
    elif types.is_string(arrow_type) or types.is_binary(arrow_type):
        _check_offset_buffer(array, np.int32, array.buffers()[2])
    elif types.is_large_string(arrow_type) or types.is_large_binary(arrow_type):
        _check_offset_buffer(array, np.int64, array.buffers()[2])
    elif types.is_list(arrow_type) or types.is_large_list(arrow_type):
        dtype = np.int32 if types.is_list(arrow_type) else np.int64
        _check_offset_buffer(array, dtype, array.values)
        check_offsets(array.values)
    elif types.is_struct(arrow_type):
        for number in range(arrow_type.num_fields):
            check_offsets(array.field(number))
    elif types.is_fixed_size_list(arrow_type):
        check_offsets(array.values)
    else:
        array.validate(full=True)


def _check_null_count(array: ArrowArray) -> None:
    """Raise `ValueError` if the number of nulls in the metadata is not that of the data."""
    pa = load_pyarrow(_WANTED_BY)
    if isinstance(array, pa.ExtensionArray) or not len(array):
        return
    bitmap = array.buffers()[0]
    if bitmap is None or pa.types.is_union(array.type):
        return
    bits = pa.Array.from_buffers(pa.bool_(), len(array), [None, bitmap], 0, array.offset)
    if len(array) - bits.true_count != array.null_count:
        raise ValueError("the number of nulls differs from that in the metadata")


def _check_offset_buffer(
    array: ArrowArray, dtype: type[np.int32 | np.int64], target: ArrowArray | None
) -> None:
    width = np.dtype(dtype).itemsize
    offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * width)
    end = 0 if target is None else len(target)
    if offsets[0] < 0 or offsets[-1] > end or (np.diff(offsets) < 0).any():
        raise ValueError("an offset points outside of the data")
