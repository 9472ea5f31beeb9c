"""Parse the command line, run a command, and print errors as one sentence."""

import argparse
import importlib.metadata
import re
import sys
from collections.abc import Sequence

from gristmill._cli.convert import TARGETS, Conversion, convert
from gristmill._cli.inspect import inspect
from gristmill._cli.sizes import parse_size
from gristmill._data.sources.detect import FORMATS
from gristmill._demo import main as demo
from gristmill.errors import GristmillError

_EPILOG = """\
examples:
  gristmill inspect train.parquet
  gristmill inspect "s3://bucket/shards/*.tar"
  gristmill convert images/ images.array_record
  gristmill convert rows.csv rows.parquet --shard-size 512MB
  gristmill demo
"""

_PATH_HELP = "a file, a folder, or a quoted pattern with *; also s3://, gs://, http://, ..."

_SOURCE_OPTIONS = ("format", "columns", "split", "table", "query")
"""Arguments of `open_source` that are flags of the same name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status of the process.

    Args:
        arguments: The command line without the name of the program; by default `sys.argv[1:]`.
    """
    parsed = _make_parser().parse_args(arguments)
    try:
        return parsed.run(parsed) or 0
    except KeyboardInterrupt:
        return 130  # the exit status that shells use for Ctrl-C
    except BrokenPipeError:
        return 0  # `gristmill inspect ... | head`
    except (GristmillError, OSError) as error:
        sys.stderr.write(f"gristmill: {_name_flags(str(error), parsed.path_metavar)}\n")
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"  {_name_flags(note, parsed.path_metavar)}\n")
        return 1


def _name_flags(message: str, path_metavar: str) -> str:
    """Replace the names of Python arguments in a message by their names on the command line.

    >>> _name_flags("`columns` must name each column once.", "PATH")
    '`--columns` must name each column once.'
    """
    names = {option: f"--{option}" for option in _SOURCE_OPTIONS}
    names |= {"path": path_metavar, "paths": path_metavar}
    return re.sub(r"`(\w+)`", lambda match: f"`{names.get(match[1], match[1])}`", message)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Inspect data files, and convert them to a format that loads fast.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = importlib.metadata.version("gristmill")
    parser.add_argument("--version", action="version", version=f"gristmill {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_inspect_arguments(
        commands.add_parser(
            "inspect",
            help="show the format, the number and sizes of the records, and the first records",
            description="Show the format of some files, the number and sizes of their records, "
            "and the first records.",
        )
    )
    _add_convert_arguments(
        commands.add_parser(
            "convert",
            help="convert records to ArrayRecord, Parquet or npy files",
            description="Write the records of SRC as shards to the folder DST. If interrupted, "
            "run the same command again to resume. DST appears once it is complete. Existing "
            "files are never overwritten.",
        )
    )
    demo_parser = commands.add_parser(
        "demo",
        help="train a small network on MNIST in JAX",
        description=demo.DESCRIPTION,
        epilog=demo.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_arguments(demo_parser)
    demo_parser.set_defaults(run=demo.run, path_metavar="DIR")
    return parser


def _add_inspect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=_PATH_HELP)
    parser.add_argument(
        "-n",
        "--records",
        type=int,
        default=3,
        metavar="N",
        help="the number of records to show (default: 3)",
    )
    _add_source_options(parser)
    parser.set_defaults(run=_run_inspect, path_metavar="PATH")


def _run_inspect(parsed: argparse.Namespace) -> None:
    inspect(parsed.path, count=parsed.records, output=sys.stdout, **_source_options(parsed))


def _add_convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help=_PATH_HELP)
    parser.add_argument("target", metavar="DST", help="a folder that does not exist yet")
    parser.add_argument(
        "--to",
        choices=sorted(TARGETS),
        help="the format to write (default: the suffix of DST, or array_record)",
    )
    parser.add_argument(
        "--shard-size",
        type=parse_size,
        default=parse_size("256MB"),
        metavar="SIZE",
        help="the approximate size of each shard (default: 256MB)",
    )
    parser.add_argument(
        "--records-per-shard",
        type=int,
        metavar="N",
        help="the number of records in each shard, instead of --shard-size",
    )
    _add_source_options(parser)
    parser.set_defaults(run=_run_convert, path_metavar="SRC")


def _run_convert(parsed: argparse.Namespace) -> None:
    convert(
        Conversion(
            source=parsed.source,
            target=parsed.target,
            to=parsed.to,
            shard_bytes=parsed.shard_size,
            records_per_shard=parsed.records_per_shard,
            options=_source_options(parsed),
        ),
        output=sys.stdout,
    )


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        help="the format of the files (default: detected from their content and names)",
    )
    parser.add_argument("--columns", metavar="A,B", help="read only these columns of a table")
    parser.add_argument("--split", help="read this split of a Hugging Face dataset")  # words: name
    parser.add_argument("--table", help="read this table of an SQLite database")
    parser.add_argument("--query", help="read the rows of this SELECT from an SQLite database")


def _source_options(parsed: argparse.Namespace) -> dict[str, object]:
    options: dict[str, object] = {name: getattr(parsed, name) for name in _SOURCE_OPTIONS}
    options["columns"] = parsed.columns.split(",") if parsed.columns else None
    return {name: value for name, value in options.items() if value is not None}
