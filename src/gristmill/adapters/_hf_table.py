"""Where the rows of a dataset of Hugging Face are, so that a worker finds them without `datasets`.

A table there is made of blocks: files that are mapped into memory, and tables that are in it.
A worker maps the same files again; what is in memory is sent to it, once for all workers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from gristmill._extras import load_extra

_SAME_VALUES = {
    "drop",
    "remove_column",
    "rename_columns",
    "replace_schema_metadata",
    "select",
    "slice",
}
"""What may have been done to the table of a file that pyarrow alone can do again in no time."""


class FileBlock(NamedTuple):
    """A file, and the calls that make the block of its table."""

    path: str
    calls: Sequence[tuple[str, Sequence[Any], dict[str, Any]]]

    def open(self) -> Any:
        pa = load_pyarrow()
        table = pa.ipc.open_stream(pa.memory_map(self.path)).read_all()
        for name, arguments, options in self.calls:
            table = getattr(table, name)(*arguments, **options)
        return as_stored(table)


class MemoryBlock(NamedTuple):
    """A table of pyarrow, or an Arrow stream of one that is a small part of its memory."""

    table: Any
    stream: Any

    def open(self) -> Any:
        return load_pyarrow().ipc.open_stream(self.stream).read_all() if self.stream else self.table


Blocks: TypeAlias = list[list[FileBlock | MemoryBlock]]
"""Rows of blocks: those beside each other have different columns."""


def blocks_of(data: Any) -> Blocks | None:
    """Take the table of a dataset apart; None if something was done to it that only HF can do."""
    tables = load_extra("datasets.table", extra="huggingface", wanted_by="`from_huggingface`")
    rows = data.blocks if isinstance(data, tables.ConcatenationTable) else [[data]]
    made: Blocks = []
    for row in rows:
        made.append([])
        for block in row:
            if isinstance(block, tables.InMemoryTable):
                made[-1].append(_in_memory(as_stored(block.table)))
            elif isinstance(block, tables.MemoryMappedTable):
                if any(name not in _SAME_VALUES for name, _, _ in block.replays):
                    return None
                calls = [call for call in block.replays if call[0] != "replace_schema_metadata"]
                made[-1].append(FileBlock(block.path, calls))
            else:
                return None
    return made


def table_of(blocks: Blocks) -> Any:
    """Put a table together again."""
    pa = load_pyarrow()
    made: list[Any] = []
    for row in blocks:
        table = row[0].open()
        for other in row[1:]:
            beside = other.open()
            for name in beside.column_names:
                table = table.append_column(name, beside.column(name))
        made.append(table)
    return made[0] if len(made) == 1 else pa.concat_tables(made, promote_options="default")


def as_stored(table: Any) -> Any:
    """Give a table without the types of HF's own, whose values are stored as lists of lists.

    pyarrow knows such a type only where `datasets` was imported.
    """
    pa = load_pyarrow()
    for number, field in enumerate(table.schema):
        kind = field.type
        if isinstance(kind, pa.ExtensionType) and kind.extension_name.startswith("datasets."):
            chunks = [chunk.storage for chunk in table.column(number).chunks]
            column = pa.chunked_array(chunks, kind.storage_type)
            table = table.set_column(number, field.name, column)
    return table.replace_schema_metadata(None)


def load_pyarrow() -> Any:
    """Import pyarrow, which `datasets` needs as well."""
    return load_extra("pyarrow", extra="huggingface", wanted_by="`from_huggingface`")


def _in_memory(table: Any) -> MemoryBlock:
    """Take a table; pickled as it is, one that is a slice would take all of its memory along."""
    if table.get_total_buffer_size() <= 2 * table.nbytes + 4096:
        return MemoryBlock(table, None)
    pa = load_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return MemoryBlock(None, sink.getvalue())
