"""`gristmill inspect`: show the format of some files, their columns, and the first records."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO, Unpack, final

from gristmill._addresses import strip_credentials
from gristmill._base.format_size import format_size
from gristmill._base.progress import progress
from gristmill._base.trees.columns import Columns
from gristmill._cli.class_names import find_class_names, label_with_name
from gristmill._cli.folder_contents import list_contents
from gristmill._cli.source_flags import PATH_HELP, SourceOptions, add_source_flags, source_options
from gristmill._data.sources.detect import contents_of, detect_format, files_of, open_source
from gristmill._data.statistics.blocks import blocks_of_source
from gristmill._data.statistics.table_summary import TableSummary, summarize_table
from gristmill._data.writers.records import (
    are_examples,
    column_parser,
    estimate_bytes,
    read_records,
    spread_indices,
)
from gristmill._io.file import FileRef
from gristmill._io.folders.atomic_write import write_atomically
from gristmill._metrics.pages.html_table import table
from gristmill._printable import printable
from gristmill._views.columns import ColumnView, view_columns
from gristmill._views.columns_html import column_cards
from gristmill._views.columns_text import column_lines
from gristmill._views.elements import ElementView
from gristmill._views.page import page
from gristmill._views.terminal_image import supports_images
from gristmill.errors import GristmillError, PlanError
from gristmill.types import Element, RandomAccessDataSource

_SAMPLE_SIZE = 256
_NUM_RECORDS = 3
_NUM_RECORDS_ON_PAGE = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `inspect` to its parser."""
    parser.description = (
        "Show the format of some files, the number and sizes of their records, what is in each "
        "column, and the first records."
    )
    parser.add_argument("path", metavar="PATH", help=PATH_HELP)
    parser.add_argument(
        "-n",
        "--records",
        type=int,
        metavar="N",
        help=f"the number of records to show (default: {_NUM_RECORDS}, and "
        f"{_NUM_RECORDS_ON_PAGE} on a page)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"read all records for the columns, not a sample of {_SAMPLE_SIZE}",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with charts and images instead"
    )
    add_source_flags(parser, path_metavar="PATH")
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> None:
    default = _NUM_RECORDS if parsed.html is None else _NUM_RECORDS_ON_PAGE
    inspect(
        parsed.path,
        count=default if parsed.records is None else parsed.records,
        output=sys.stdout,
        reads_all=parsed.all,
        page_path=parsed.html,
        **source_options(parsed),
    )


@final
@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What is shown of some files."""

    path: str
    facts: dict[str, str]
    """Format, files, number and sizes of the records."""
    columns: Sequence[ColumnView]
    of_sample: str
    """What the columns are computed from."""
    records: Sequence[dict[str, Element]]
    """The columns of the first records."""
    class_names: Mapping[str, Sequence[str]]
    """The names of the classes of columns with labels."""

    def views(self, title: Callable[[int], str]) -> Iterator[ElementView]:
        """Yield how the first records are shown, labels with the names of their classes."""
        decode = {
            name: partial(label_with_name, names=names) for name, names in self.class_names.items()
        }
        for number, record in enumerate(self.records):
            yield ElementView(title=title(number), element=record, decode=decode)


def inspect(
    path: str,
    *,
    count: int,
    output: TextIO,
    reads_all: bool = False,
    page_path: str | None = None,
    **options: Unpack[SourceOptions],
) -> None:
    """Show a summary of some files, their columns, and their first records.

    Args:
        path: A file, a folder or a pattern.
        count: The number of records to show.
        output: The stream to print to. Images are shown if it is a terminal with colors.
        reads_all: Whether the columns are those of all records, not of a sample.
        page_path: The file to write a page to, instead of printing.
        **options: Arguments for `open_source`.

    Raises:
        PlanError: The page cannot be written.
    """
    if count < 0:
        raise PlanError(f"`--records` must be at least 0, got {count}.")
    contents = [printable(line) for line in list_contents(contents_of(path))]
    try:
        found = _inspect(path, count, reads_all, options)
    except GristmillError:
        output.writelines(f"{line}\n" for line in contents)
        raise
    if page_path is None:
        _print(found, contents, output)
        return
    try:
        write_atomically(Path(page_path), [_page(found).encode("utf-8", "backslashreplace")])
    except OSError as error:
        raise PlanError(
            f"The page {page_path!r} cannot be written: {error.strerror}. Pass the path of a file "
            "in a folder that you may write to."
        ) from error
    output.write(f"Wrote {printable(page_path)}.\n")


def _inspect(path: str, count: int, reads_all: bool, options: SourceOptions) -> Inspection:
    name = options["format"] = options.get("format") or detect_format(path)
    source = open_source(path, **options)
    refs = files_of(path)
    num_records = len(source)
    sample, first = _read_some(source, count)
    parse = column_parser(sample)
    summary = (
        _summarize_all(source, sample)
        if reads_all and len(sample) < num_records
        else summarize_table(map(parse, sample))
    )
    class_names = find_class_names(source, refs)
    is_sample = summary.num_records < num_records
    of_sample = f"sample of {summary.num_records:,} records" if is_sample else "all records"
    return Inspection(
        path=path,
        facts=dict(_facts(name, source, refs, sample)),
        columns=list(view_columns(summary, class_names)),
        of_sample=of_sample,
        records=[column_parser([record])(record) for record in first],
        class_names=class_names,
    )


def _read_some(
    source: RandomAccessDataSource[Element], count: int
) -> tuple[Sequence[Element], Sequence[Element]]:
    """Return a sample of the records, and the first ones."""
    length = len(source)
    if not length:
        return [], []
    sample = read_records(source, spread_indices(length, _SAMPLE_SIZE))
    return sample, read_records(source, range(min(count, length))) if count else []


def _summarize_all(
    source: RandomAccessDataSource[Element], sample: Sequence[Element]
) -> TableSummary:
    parse, total = column_parser(sample), TableSummary(num_records=0, columns={}, num_nested={})
    with progress("Reading", total=len(source), unit="records") as advance:
        for count, block in blocks_of_source(source):
            rows = block if isinstance(block, Columns) else map(parse, block)
            total = total.merge(summarize_table(rows))
            advance(count)
    return total


def _facts(
    name: str,
    source: RandomAccessDataSource[Element],
    refs: Sequence[FileRef],
    sample: Sequence[Element],
) -> Iterator[tuple[str, str]]:
    yield "format", f"{name} of tf.train.Example" if are_examples(sample) else name
    total_bytes = sum(ref.size for ref in refs)
    first = f"{refs[0].name}{', ...' if len(refs) > 1 else ''}"
    yield "files", f"{len(refs):,} ({format_size(total_bytes)}): {first}"
    yield "records", f"{len(source):,}"
    if not sample:
        return
    sizes = [estimate_bytes(record) for record in sample]
    of_sample = "" if len(sample) == len(source) else f" (sample of {len(sample)} records)"
    mean = format_size(sum(sizes) / len(sizes))
    yield "sizes", f"{format_size(min(sizes))} to {format_size(max(sizes))}, mean {mean}{of_sample}"


def _print(found: Inspection, contents: Sequence[str], output: TextIO) -> None:
    width = max(map(len, found.facts))
    for label, value in found.facts.items():
        output.write(f"{label:{width}}  {printable(value)}\n")
    if contents:
        output.write("\nfolder\n")
        output.writelines(f"  {line}\n" for line in contents)
    if found.columns:
        output.write(f"\ncolumns ({found.of_sample})\n")
        for line in column_lines(found.columns, encoding=output.encoding):
            output.write(f"  {line}\n")
    shows_images = supports_images(output, os.environ)
    for view in found.views("[{}]".format):
        for line in ("", *view.lines(shows_images=shows_images)):
            output.write(f"{line}\n")


def _page(found: Inspection) -> str:
    path = strip_credentials(found.path)
    title = printable(os.path.basename(path.rstrip("/")) or path)
    cards = [view.html() for view in found.views("Record {:,}".format)]
    parts = [
        f"<h1>gristmill inspect</h1>{table(('', ''), list(found.facts.items()), num_text=2)}",
        f"<h2>Columns ({found.of_sample})</h2>{column_cards(found.columns)}",
        f'<h2>First records</h2><div class="grid">{"".join(cards)}</div>',
    ]
    return page(f"gristmill: {title}", parts)
