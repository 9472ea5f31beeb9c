"""The flags of commands that open a source."""

import argparse
from typing import TypedDict, cast

from gristmill._data.sources.detect import FORMATS

PATH_HELP = "a file, a folder, or a quoted pattern with *; also s3://, gs://, http://, ..."


class SourceOptions(TypedDict, total=False):
    """Arguments of `open_source` that are flags of the same name."""

    format: str
    columns: list[str]
    types: dict[str, str]
    delimiter: str
    has_header: bool
    split: str
    table: str
    query: str
    by: str


def add_source_flags(parser: argparse.ArgumentParser, *, path_metavar: str) -> None:
    """Add the flags for the arguments of `open_source`.

    Args:
        parser: The parser of a command.
        path_metavar: What its help calls the path of the source, for error messages.
    """
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        help="the format of the files (default: detected from their content and names)",
    )
    parser.add_argument("--columns", metavar="A,B", help="read only these columns of a table")
    parser.add_argument(
        "--types",
        metavar="A=TYPE,...",
        type=_parse_types,
        help="the types of some columns of a CSV file, such as id=int32,price=float32",
    )
    parser.add_argument(
        "--delimiter",
        metavar="CHAR",
        type=lambda delimiter: "\t" if delimiter in ("\\t", "tab") else delimiter,
        help="the character between the fields of a CSV file; `tab` for a tab",
    )
    parser.add_argument(
        "--has-header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of a CSV file contains the names of the columns",
    )
    parser.add_argument("--split", help="read this split of a Hugging Face dataset")
    parser.add_argument("--table", help="read this table of an SQLite database")
    parser.add_argument("--query", help="read the rows of this SELECT from an SQLite database")
    parser.add_argument(
        "--by", choices=["line", "paragraph"], help="what a record of a text file is"
    )
    flags = {option: f"--{option}" for option in SourceOptions.__annotations__}
    flags |= {
        "has_header": "--has-header",
        "has_header=True": "--has-header",
        "has_header=False": "--no-has-header",
    }
    parser.set_defaults(flags={**flags, "path": path_metavar, "paths": path_metavar})


def _parse_types(string: str) -> dict[str, str]:
    """Return the types of columns that a flag contains.

    >>> _parse_types("id=int32,price=float32")
    {'id': 'int32', 'price': 'float32'}
    """
    pairs = [pair.partition("=") for pair in string.split(",")]
    if not all(name and equals and value for name, equals, value in pairs):
        raise argparse.ArgumentTypeError(f"must be like id=int32,price=float32, got {string!r}")
    return {name: value for name, _, value in pairs}


def source_options(parsed: argparse.Namespace) -> SourceOptions:
    """Return the arguments of `open_source` that the command line contains."""
    options = {name: getattr(parsed, name) for name in SourceOptions.__annotations__}
    options["columns"] = parsed.columns.split(",") if parsed.columns else None
    given = {name: value for name, value in options.items() if value is not None}
    return cast(SourceOptions, given)
