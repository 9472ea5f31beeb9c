"""The flags of commands that open a source."""

import argparse
from typing import TypedDict, cast

from gristmill._data.sources.detect import FORMATS

PATH_HELP = "a file, a folder, or a quoted pattern with *; also s3://, gs://, http://, ..."


class SourceOptions(TypedDict, total=False):
    """Arguments of `open_source` that are flags of the same name."""

    format: str
    columns: list[str]
    split: str
    table: str
    query: str


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
    parser.add_argument("--split", help="read this split of a Hugging Face dataset")
    parser.add_argument("--table", help="read this table of an SQLite database")
    parser.add_argument("--query", help="read the rows of this SELECT from an SQLite database")
    flags = {option: f"--{option}" for option in SourceOptions.__annotations__}
    parser.set_defaults(flags={**flags, "path": path_metavar, "paths": path_metavar})


def source_options(parsed: argparse.Namespace) -> SourceOptions:
    """Return the arguments of `open_source` that the command line contains."""
    options = {name: getattr(parsed, name) for name in SourceOptions.__annotations__}
    options["columns"] = parsed.columns.split(",") if parsed.columns else None
    given = {name: value for name, value in options.items() if value is not None}
    return cast(SourceOptions, given)
