"""Parse the command line, run a command, and print errors as one sentence."""

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from gristmill._base.version import VERSION
from gristmill._printable import printable
from gristmill.errors import GristmillError

_EPILOG = """\
examples:
  gristmill inspect train.parquet
  gristmill inspect "s3://bucket/shards/*.tar"
  gristmill convert images/ images.array_record
  gristmill convert rows.csv rows.parquet --shard-size 512MB
  gristmill top
  gristmill state checkpoints/1000 --pipeline train:loader
  gristmill replay train:loader --step 123456
  gristmill diff runs/a runs/b
  gristmill audit runs/a --pipeline train:loader
  gristmill demo
"""


class _Command(NamedTuple):
    module: str
    """The module that implements the command. It is imported only to run or describe it."""
    help: str


COMMANDS = {
    "inspect": _Command(
        "gristmill._cli.inspect",
        "show the format, the number and sizes of the records, and the first records",
    ),
    "convert": _Command(
        "gristmill._cli.convert",
        "convert records to ArrayRecord, TFRecord, Parquet, tar or npy files",
    ),
    "top": _Command("gristmill._cli.top", "show what the loaders of another process do"),
    "report": _Command("gristmill._cli.report", "write a page about another process"),
    "state": _Command(
        "gristmill._cli.state", "describe the state of an iterator, or compare two of them"
    ),
    "replay": _Command(
        "gristmill._cli.replay", "show the element at a step of a pipeline, and its records"
    ),
    "diff": _Command("gristmill._cli.diff", "name the first step at which two runs differ"),
    "audit": _Command(
        "gristmill._cli.audit", "check that each record of a run came as often as it should"
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
    parser = _make_parser(arguments)
    if not arguments:
        parser.print_help()
        return 0
    parsed = parser.parse_args(arguments)
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

    >>> flags = {"columns": "--columns", "types": "--types"}
    >>> _name_flags("`columns` must name each column once.", flags)
    '`--columns` must name each column once.'
    >>> _name_flags("Set its type, such as `types={'x': 'string'}`.", flags)
    'Set its type, such as `--types x=string`.'
    """

    def name(match: re.Match[str]) -> str:
        code = match[1]
        if code in flags:
            return f"`{flags[code]}`"
        argument, equals, value = code.partition("=")
        if not equals or argument not in flags:
            return match[0]
        return f"`{flags[argument]} {_as_flag_value(value)}`"

    return re.sub(r"`([^`]+)`", name, message)


def _as_flag_value(code: str) -> str:
    """Return the Python expression of a value as it is written after a flag."""
    try:
        value: object = ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return code
    if not isinstance(value, dict):
        return str(value)
    items = cast("dict[object, object]", value).items()
    return ",".join(f"{key}={item}" for key, item in items)


def _make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that knows all commands, and the arguments of the one that is named."""
    parser = argparse.ArgumentParser(
        prog="gristmill",
        description="Inspect data files, convert them to a fast format, and watch loaders.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gristmill {VERSION}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    named = next((argument for argument in arguments if argument in COMMANDS), None)
    for name, command in COMMANDS.items():
        command_parser = parsers.add_parser(name, help=command.help)
        if name == named:
            module = cast("_CommandModule", importlib.import_module(command.module))
            module.add_arguments(command_parser)
    return parser
