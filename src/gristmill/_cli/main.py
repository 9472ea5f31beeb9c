"""Parse the command line, run a command, and print errors as one sentence."""

import argparse
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from gristmill._base.printable import printable
from gristmill._base.version import VERSION
from gristmill.errors import GristmillError

_EPILOG = """\
examples:
  gristmill inspect train.parquet
  gristmill inspect "s3://bucket/shards/*.tar"
  gristmill convert images/ images.array_record
  gristmill convert rows.csv rows.parquet --shard-size 512MB
  gristmill demo
"""


class _Command(NamedTuple):
    module: str
    """The module that implements the command. It is imported only to run or describe it."""
    help: str


_COMMANDS = {
    "inspect": _Command(
        "gristmill._cli.inspect",
        "show the format, the number and sizes of the records, and the first records",
    ),
    "convert": _Command(
        "gristmill._cli.convert", "convert records to ArrayRecord, Parquet or npy files"
    ),
    "demo": _Command("gristmill._demo.main", "train a small network on MNIST in JAX"),
}


class _CommandModule(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Describe a command to its parser.

        Its defaults are `run`, a function of the parsed arguments that may return an exit status,
        and `flags`, what Python arguments are called on the command line.
        """
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status of the process.

    Args:
        arguments: The command line without the name of the program; by default `sys.argv[1:]`.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parsed = _make_parser(arguments).parse_args(arguments)
    try:
        return parsed.run(parsed) or 0
    except KeyboardInterrupt:
        return 130  # the exit status that shells use for Ctrl-C
    except BrokenPipeError:
        return 0  # `gristmill inspect ... | head`
    except (GristmillError, OSError) as error:
        sys.stderr.write(f"gristmill: {printable(_name_flags(str(error), parsed.flags))}\n")
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"  {printable(_name_flags(note, parsed.flags))}\n")
        return 1


def _name_flags(message: str, flags: Mapping[str, str]) -> str:
    """Replace the names of Python arguments in a message by their names on the command line.

    >>> _name_flags("`columns` must name each column once.", {"columns": "--columns"})
    '`--columns` must name each column once.'
    """
    return re.sub(r"`(\w+)`", lambda match: f"`{flags.get(match[1], match[1])}`", message)


def _make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that knows all commands, and the arguments of the one that is named."""
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Inspect data files, and convert them to a format that loads fast.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gristmill {VERSION}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    named = next((argument for argument in arguments if argument in _COMMANDS), None)
    for name, command in _COMMANDS.items():
        command_parser = parsers.add_parser(name, help=command.help)
        if name == named:
            module = cast("_CommandModule", importlib.import_module(command.module))
            module.add_arguments(command_parser)
    return parser
