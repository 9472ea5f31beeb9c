"""Rows of Arrow IPC files: Arrow files, Arrow streams, Feather."""

import mmap
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, final

from gristmill._arrow import dense_of, join, load_pyarrow, told_as_ours
from gristmill.files import Paths, find_files, tell_files
from gristmill.options import StorageOptions
from gristmill.sources._arrow_check import check_offsets
from gristmill.sources._fields import check_names, select
from gristmill.sources._ipc_messages import Messages, find_messages
from gristmill.sources._parts import Layout, Part, TableFiles, together
from gristmill.sources._table import TableSource

_ME = "`ArrowSource`"
_KIND = "Arrow file"
_PART_BYTES = 8 * 2**20
"""Batches smaller than this are read together with their neighbours."""
CACHE_BYTES = 2**30
"""How much to keep in memory of what is not just mapped: batches that are compressed or far away,
and columns of numbers that are in many batches."""


@final
class ArrowSource(TableSource):
    """Random access to the rows of Arrow IPC files, streams and Feather files, as dicts.

    Files on this machine are mapped into memory, which all processes share. Record batches that
    are compressed, have dictionaries, or are in a store are read when they are first wanted, and
    each process keeps up to a gigabyte of them; so it does with small ones, joined, if all fit.

    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.feather
    >>> with tempfile.NamedTemporaryFile(suffix=".feather") as file:
    ...     table = pa.table({"id": [1, 2, 3], "text": ["a", "b", None]})
    ...     pa.feather.write_feather(table, file.name)
    ...     source = ArrowSource(file.name)
    ...     len(source), source[2]
    (3, {'id': np.int64(3), 'text': None})

    Args:
        paths: A file, or several with the same columns, or a pattern; local or in a store.
        columns: The names of those to read; all by default.
        storage: How files in a store are read.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        load_pyarrow(_ME)
        refs = find_files(paths, storage)
        super().__init__(ArrowFiles(refs, columns), told=tell_files(refs), cache_bytes=CACHE_BYTES)


class _Detail(NamedTuple):
    """Of one file: its messages, and the schema of all its columns."""

    messages: Messages
    schema: Any


@final
class ArrowFiles(TableFiles):
    """Arrow files, of which each part is some record batches."""

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._maps: dict[int, Any] = {}

    def survey(self) -> Layout:
        refs = self.files.refs
        if not refs:  # what `datasets` saves of a dataset without rows
            return Layout(load_pyarrow(_ME).schema([]), [], has_nulls=False)
        with ThreadPoolExecutor(min(len(refs), refs[0].storage.num_parallel)) as threads:
            details = list(threads.map(self._detail, range(len(refs))))
        schema = select([detail.schema for detail in details], self.columns, refs)
        is_mapped = all(
            ref.is_local and not messages.is_compressed and not messages.dictionaries
            for ref, (messages, _) in zip(refs, details, strict=True)
        )
        sizes = [[stop - start for start, stop in messages.batches] for messages, _ in details]
        # Many small batches are slow to gather from. Joined they are copies, where there is room.
        limit = 0 if is_mapped and sum(map(sum, sizes)) > CACHE_BYTES else _PART_BYTES
        parts = [
            part
            for number, (messages, _) in enumerate(details)
            for part in together(
                number,
                messages.counts,
                sizes[number],
                limit=limit,
            )
        ]
        has_nulls = any(_has_nulls(detail, schema.names) for detail in details)
        return Layout(schema, parts, has_nulls, details, is_mapped)

    def read(self, layout: Layout, part: Part) -> list[Any]:
        detail: _Detail = layout.details[part.file]
        with told_as_ours(self.files.refs[part.file].path, _KIND):
            names = layout.schema.names
            if layout.is_mapped:
                batches = self._mapped(detail, part)
                for batch in batches:
                    for name in names:
                        check_offsets(batch.column(name))
            else:
                batches = self._decoded(detail, part, names)
                for batch in batches:
                    batch.validate(full=True)
            return [join([batch.column(name) for batch in batches]) for name in names]

    def _mapped(self, detail: _Detail, part: Part) -> list[Any]:
        pa = load_pyarrow(_ME)
        memory = self._map(part.file)
        return [
            pa.ipc.read_record_batch(memory.slice(start, stop - start), detail.schema)
            for start, stop in detail.messages.batches[part.first : part.stop]
        ]

    def _decoded(self, detail: _Detail, part: Part, names: Sequence[str]) -> list[Any]:
        """Make a stream of the batches and of what is needed to read them."""
        pa = load_pyarrow(_ME)
        messages = detail.messages
        spans = [*messages.dictionaries, *messages.batches[part.first : part.stop]]
        if messages.is_stream:  # a dictionary holds for what comes after it
            spans = sorted(span for span in spans if span <= spans[-1])
        starts, stops = zip(messages.schema, *spans, strict=True)
        stream = pa.BufferReader(b"".join(self.files[part.file].read(starts, stops)))
        wanted = [detail.schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        return list(pa.ipc.open_stream(stream, options=options))

    def _map(self, number: int) -> Any:
        with self._lock:
            if number not in self._maps:
                with self.files[number].local_path().open("rb") as file:
                    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._maps[number] = load_pyarrow(_ME).py_buffer(memory)
            return self._maps[number]

    def _detail(self, number: int) -> _Detail:
        file = self.files[number]
        messages = find_messages(file)
        pa = load_pyarrow(_ME)
        with told_as_ours(file.ref.path, _KIND):
            schema = pa.ipc.read_schema(pa.py_buffer(file.read_one(*messages.schema)))
            check_names(schema.names, file.ref.path)
        return _Detail(messages, schema)


def _has_nulls(detail: _Detail, names: Sequence[str]) -> bool:
    """Tell whether a number in one of the columns is null."""
    node = 0
    for field in detail.schema:
        width = _num_nodes(field.type)
        is_wanted = field.name in names and dense_of(field.type) is not None
        if is_wanted and detail.messages.nulls[..., node : node + width].any():
            return True
        node += width
    return False


def _num_nodes(kind: Any) -> int:
    """Count the arrays that a column is stored as."""
    if isinstance(kind, load_pyarrow(_ME).BaseExtensionType):
        return _num_nodes(kind.storage_type)
    return 1 + sum(_num_nodes(kind.field(n).type) for n in range(kind.num_fields))
