"""Read the command line, and say what went wrong in one sentence."""

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from gristmill.command._convert import TARGETS, Conversion, convert
from gristmill.command._inspect import inspect
from gristmill.command._sizes import as_bytes
from gristmill.errors import GristmillError
from gristmill.sources import FORMATS

_EPILOG = """\
examples:
  gristmill inspect train.parquet
  gristmill inspect "s3://bucket/shards/*.tar"
  gristmill convert images/ images.array_record
  gristmill convert rows.csv rows.parquet --shard-size 512MB
"""

_WHERE = "a file, a folder, or a pattern with * in quotes; also s3://, gs://, http://, ..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and give the status that the process ends with."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except KeyboardInterrupt:
        return 130  # what the shell makes of it
    except BrokenPipeError:
        return 0  # `gristmill inspect ... | head`
    except (GristmillError, OSError) as error:
        sys.stderr.write(f"gristmill: {error}\n")
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"  {note}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Look into data files, and write them anew in a format that loads fast.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = importlib.metadata.version("gristmill")
    parser.add_argument("--version", action="version", version=f"gristmill {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _fill_inspect(
        commands.add_parser(
            "inspect",
            help="tell the format, the records and their sizes, and show the first ones",
            description="Tell the format, the records and their sizes, and show the first ones.",
        )
    )
    _fill_convert(
        commands.add_parser(
            "convert",
            help="write the records anew as ArrayRecord, Parquet or npy files",
            description="Write the records of SRC to shards in the folder DST. Interrupted, it "
            "goes on when it is run again; DST is there when all of it is. It overwrites nothing.",
        )
    )
    return parser


def _fill_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=_WHERE)
    parser.add_argument(
        "-n", "--records", type=int, default=3, metavar="N", help="how many to show (3)"
    )
    _add_source_options(parser)
    parser.set_defaults(run=_run_inspect)


def _run_inspect(given: argparse.Namespace) -> None:
    inspect(given.path, count=given.records, output=sys.stdout, **_source_options(given))


def _fill_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help=_WHERE)
    parser.add_argument("target", metavar="DST", help="a folder that does not exist yet")
    parser.add_argument(
        "--to",
        choices=sorted(TARGETS),
        help="the format to write; by default, what the ending of DST says, or array_record",
    )
    parser.add_argument(
        "--shard-size",
        type=as_bytes,
        default=as_bytes("256MB"),
        metavar="SIZE",
        help="about how large each file is to be (256MB)",
    )
    parser.add_argument(
        "--records-per-shard", type=int, metavar="N", help="or how many records it is to have"
    )
    _add_source_options(parser)
    parser.set_defaults(run=_run_convert)


def _run_convert(given: argparse.Namespace) -> None:
    convert(
        Conversion(
            source=given.source,
            target=given.target,
            to=given.to,
            shard_bytes=given.shard_size,
            records_per_shard=given.records_per_shard,
            options=_source_options(given),
        ),
        output=sys.stdout,
    )


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=sorted(FORMATS), help="the format of the data, if it is not found out"
    )
    parser.add_argument("--columns", metavar="A,B", help="of a table, only these columns")
    parser.add_argument("--split", help="of a Hugging Face dataset, this split")
    parser.add_argument("--table", help="of an SQLite database, this table")
    parser.add_argument("--query", help="of an SQLite database, the rows of this SELECT")


def _source_options(given: argparse.Namespace) -> dict[str, object]:
    options = {
        "format": given.format,
        "columns": given.columns.split(",") if given.columns else None,
        "split": given.split,
        "table": given.table,
        "query": given.query,
    }
    return {name: value for name, value in options.items() if value is not None}
