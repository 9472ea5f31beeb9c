"""Splits the Arrow table of a Hugging Face dataset into fragments that a worker can open.

A table consists of fragments: files that are mapped into memory, and tables in memory. A worker
maps the same files and needs no `datasets` package. Tables in memory are sent to it, one copy for
all workers.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from gristmill._base.extras import load_extra

ArrowTable: TypeAlias = Any
"""A `pyarrow.Table`. pyarrow is optional, so its types cannot be imported here."""

HfTable: TypeAlias = Any
"""A `datasets.table.Table`, which wraps a `pyarrow.Table`."""

_REPLAYABLE_CALLS = {
    "drop",
    "remove_column",
    "rename_columns",
    "replace_schema_metadata",
    "select",
    "slice",
}
"""Methods, called on the table of a file, that pyarrow alone can replay and that copy no values."""


class FileFragment(NamedTuple):
    """An Arrow file, and the method calls that make the fragment of its table."""

    path: str
    calls: Sequence[tuple[str, Sequence[object], Mapping[str, object]]]

    def open(self) -> ArrowTable:
        pa = load_pyarrow()
        table = pa.ipc.open_stream(pa.memory_map(self.path)).read_all()
        for name, arguments, options in self.calls:
            table = getattr(table, name)(*arguments, **options)
        return to_storage_types(table)


class MemoryFragment(NamedTuple):
    """A table in memory, or an Arrow stream of it if it is a small slice of a larger table."""

    table: ArrowTable | None
    stream: Any

    def open(self) -> ArrowTable:
        return load_pyarrow().ipc.open_stream(self.stream).read_all() if self.stream else self.table


Fragments: TypeAlias = list[list[FileFragment | MemoryFragment]]
"""A grid of fragments: each row holds some rows of the table, split by columns."""


def split_table(data: HfTable) -> Fragments | None:
    """Split the table of a dataset into fragments.

    Args:
        data: The table of a dataset, or of the order of its rows.

    Returns:
        The fragments, or None if the table was changed in a way that only `datasets` can replay.
    """
    tables = load_extra("datasets.table", extra="huggingface", wanted_by="`from_huggingface`")
    rows = data.blocks if isinstance(data, tables.ConcatenationTable) else [[data]]
    fragments: Fragments = []
    for row in rows:
        fragments.append([])
        for block in row:
            if isinstance(block, tables.InMemoryTable):
                fragments[-1].append(_make_memory_fragment(to_storage_types(block.table)))
            elif isinstance(block, tables.MemoryMappedTable):
                if any(name not in _REPLAYABLE_CALLS for name, _, _ in block.replays):
                    return None
                calls = [call for call in block.replays if call[0] != "replace_schema_metadata"]
                fragments[-1].append(FileFragment(block.path, calls))
            else:
                return None
    return fragments


def join_fragments(fragments: Fragments) -> ArrowTable:
    """Open the fragments and join them into one table."""
    rows: list[ArrowTable] = []
    for row in fragments:
        table = row[0].open()
        for fragment in row[1:]:
            beside = fragment.open()
            for name in beside.column_names:
                table = table.append_column(name, beside.column(name))
        rows.append(table)
    if len(rows) == 1:
        return rows[0]
    return load_pyarrow().concat_tables(rows, promote_options="default")


def to_storage_types(table: ArrowTable) -> ArrowTable:
    """Replace the extension types of `datasets` by their storage types, lists of lists.

    pyarrow knows these extension types only in a process that has imported `datasets`.
    """
    pa = load_pyarrow()
    for number, field in enumerate(table.schema):
        kind = field.type
        if isinstance(kind, pa.ExtensionType) and kind.extension_name.startswith("datasets."):
            chunks = [chunk.storage for chunk in table.column(number).chunks]
            column = pa.chunked_array(chunks, kind.storage_type)
            table = table.set_column(number, field.name, column)
    return table.replace_schema_metadata(None)


def load_pyarrow() -> ModuleType:
    """Import pyarrow, which `datasets` depends on."""
    return load_extra("pyarrow", extra="huggingface", wanted_by="`from_huggingface`")


def _make_memory_fragment(table: ArrowTable) -> MemoryFragment:
    """Make a fragment whose pickle holds only the rows of `table`.

    Pickling a slice of a table directly would include all memory of that table.
    """
    if table.get_total_buffer_size() <= 2 * table.nbytes + 4096:
        return MemoryFragment(table, None)
    pa = load_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return MemoryFragment(None, sink.getvalue())
