"""`gristmill demo`: train a network on MNIST and print a table."""

import argparse
import math
import sys
from pathlib import Path

from gristmill._base.extras import load_extra
from gristmill._demo.interrupt import delay_interrupts
from gristmill._demo.mnist import MnistError, load_mnist
from gristmill.errors import MissingExtraError

_DESCRIPTION = """\
Train a small neural network on handwritten digits, with data from a gristmill DataLoader.

Without --data, it trains on the MNIST sample that ships with gristmill, in less than a minute.
It downloads nothing and writes no files.
"""
_EPILOG = """\
examples:
  gristmill demo                         use the packaged sample
  gristmill demo --epochs 3 --seed 7     train for 3 epochs, with other weights and another order
  gristmill demo --data DIR --epochs 1   use the full dataset, from the four idx files in DIR

exit status: 0 success; 2 wrong usage, bad data or a missing package; 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `demo` to its parser."""
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder of the four idx files, .gz or not"
    )
    parser.add_argument(
        "--epochs",
        type=_parse_count,
        default=20,
        metavar="N",
        help="the number of epochs (default: 20)",
    )
    parser.add_argument(
        "--batch-size",
        type=_parse_count,
        default=128,
        metavar="N",
        help="images per step (default: 128)",
    )
    parser.add_argument(
        "--step-size",
        type=_parse_step_size,
        default=0.01,
        metavar="X",
        help="the learning rate (default: 0.01)",
    )
    parser.add_argument(
        "--seed",
        type=_parse_seed,
        default=0,
        metavar="S",
        help="seed of the weights and the order (default: 0)",
    )
    order = parser.add_mutually_exclusive_group()
    order.add_argument(
        "--shuffle",
        action="store_true",
        default=True,
        help="use another order in each epoch (default)",
    )
    order.add_argument(
        "--in-order", action="store_false", dest="shuffle", help="use the order of the files"
    )
    parser.set_defaults(run=_run, flags={"path": "DIR", "paths": "DIR"})


def _run(arguments: argparse.Namespace) -> int:
    """Train with the options of the parsed command line, and return the exit status."""
    try:
        _train(arguments)
    except (MissingExtraError, MnistError, OSError) as error:
        message = str(error).replace("`directory`", "`--data`")  # the argument of `load_mnist`
        sys.stderr.write(f"gristmill demo: {message}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Nothing was written.\n")
        return 130
    return 0


def _train(arguments: argparse.Namespace) -> None:
    # Imported here, so that `--help` and the message of `load_extra` work without the packages.
    with delay_interrupts():
        for package in ("jax", "rich"):
            load_extra(package, extra="demo", wanted_by="The demo")
        from rich.console import Console  # noqa: PLC0415

        from gristmill._demo.train import (  # noqa: PLC0415
            TrainOptions,
            print_setup,
            print_summary,
            train,
        )

    data = load_mnist(arguments.data)
    origin = "Sample of MNIST" if arguments.data is None else f"MNIST in {arguments.data}"
    options = TrainOptions(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        step_size=arguments.step_size,
        seed=arguments.seed,
        shuffle=arguments.shuffle,
    )
    console = Console()
    print_setup(data, origin, options, console)
    print_summary(data, train(data, options, console), console)


def _parse_count(string: str) -> int:
    if not string.isdecimal() or int(string) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {string!r}")
    return int(string)


def _parse_seed(string: str) -> int:
    if not string.isdecimal() or int(string) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"must be an integer from 0 to {2**32 - 1}, got {string!r}"
        )
    return int(string)


def _parse_step_size(string: str) -> float:
    try:
        value = float(string)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {string!r}")
    return value
