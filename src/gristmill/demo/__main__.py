"""The command line of the demo: `python -m gristmill.demo`."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from gristmill._extras import load_extra
from gristmill.demo._interrupt import interrupts_afterwards
from gristmill.demo._mnist import MnistError, load_mnist
from gristmill.errors import MissingExtraError

_DESCRIPTION = """\
Train a small neural network on handwritten digits, fed by a gristmill DataLoader.

Without --data it learns from the sample of MNIST that comes with gristmill, in well under a minute.
It reads the data, downloads nothing and writes no file.
"""
_EPILOG = """\
examples:
  python -m gristmill.demo                         the packaged sample
  python -m gristmill.demo --epochs 3 --seed 7     shorter, with other weights and another order
  python -m gristmill.demo --data DIR --epochs 1   the full set, from the four idx files in DIR

exit status: 0 trained, 2 wrong usage, bad data or a missing package, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and give its exit status; `argv` is the command line without the program."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except (MissingExtraError, MnistError, OSError) as error:
        sys.stderr.write(f"gristmill.demo: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Nothing was written.\n")
        return 130


def _run(arguments: argparse.Namespace) -> int:
    # Imported only now, so that `--help` and the message of `load_extra` work without the packages.
    with interrupts_afterwards():
        for package in ("jax", "rich"):
            load_extra(package, extra="demo", wanted_by="The demo")
        from rich.console import Console  # noqa: PLC0415

        from gristmill.demo._train import (  # noqa: PLC0415
            TrainOptions,
            print_opening,
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
    print_opening(data, origin, options, console)
    print_summary(data, train(data, options, console), console)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gristmill.demo",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="directory of the four idx files, .gz or not"
    )
    parser.add_argument(
        "--epochs", type=_count, default=20, metavar="N", help="times to see each image (20)"
    )
    parser.add_argument(
        "--batch-size", type=_count, default=128, metavar="N", help="images per step (128)"
    )
    parser.add_argument(
        "--step-size", type=_step_size, default=0.01, metavar="X", help="learning rate (0.01)"
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="S", help="of the weights and the order (0)"
    )
    order = parser.add_mutually_exclusive_group()
    order.add_argument(
        "--shuffle", action="store_true", default=True, help="a new order every epoch (default)"
    )
    order.add_argument(
        "--in-order", action="store_false", dest="shuffle", help="the order of the file"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to {2**32 - 1}, got {text!r}"
        )
    return int(text)


def _step_size(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
