"""MNIST five ways: PyTorch, TFDS, Grain, Hugging Face and gristmill feed the same JAX model.

Each loader yields the same images in the same order, so each must reach the same accuracy, and only
the time differs. gristmill also reads the dataset of each other library. A plain loop in Python,
which needs no library, is compared, too. See `mnist/with_*.py` for the code of each.
"""

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from mnist import quiet as quiet  # before the libraries that it silences

from gristmill.demo import MnistError, load_mnist

BATCH_SIZE = 128
LIBRARIES = {  # the packages that each needs; its loaders are in `mnist/with_<name>.py`
    "pytorch": ("torch", "PIL"),
    "tfds": ("tensorflow_datasets", "tensorflow"),
    "grain": ("grain", "PIL"),
    "huggingface": ("datasets", "PIL"),
    "loop": (),
    "gristmill": (),
}
INSTALL = '`pip install "gristmill[examples]"`, or `make examples` in a checkout'
EPILOG = """\
examples:
  python examples/mnist_five_ways.py                           the sample that comes with gristmill
  python examples/mnist_five_ways.py --only grain --epochs 3   Grain and gristmill over its source
  python examples/mnist_five_ways.py --data DIR --work WORK    all of MNIST; keep the TFDS files

exit status: 0 all reached the same accuracy, 1 they did not, 2 invalid usage or data or a missing
package, 130 interrupted
"""


def main(argv=None):
    """Run the comparison and return the exit status."""
    arguments = parse(argv)
    if absent := missing("jax", "rich"):
        sys.stderr.write(f"This needs {' and '.join(absent)}: {INSTALL}.\n")
        return 2
    try:
        data = load_mnist(arguments.data)
        if arguments.work is None:
            with tempfile.TemporaryDirectory(prefix="mnist_five_ways_") as work:
                return compare(data, arguments, Path(work))
        arguments.work.mkdir(parents=True, exist_ok=True)
        return compare(data, arguments, arguments.work)
    except (MnistError, OSError) as error:
        sys.stderr.write(f"mnist_five_ways: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130


def compare(data, arguments, work):
    """Train once with each contender, print the table and draw the plot."""
    # Imported here, since `--help` and the message about missing packages must work without them.
    from mnist.comparison import disagreement, train  # noqa: PLC0415
    from mnist.table import table  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=120)  # wide enough not to wrap
    num_images = len(data.train_labels)
    origin = "Sample of MNIST" if arguments.data is None else f"MNIST in {arguments.data}"
    epochs = f"{arguments.epochs} epoch{'s' if arguments.epochs > 1 else ''}"
    console.print(
        f"{origin}: {num_images:,} images to train, {len(data.test_labels):,} to test; "
        f"batches of {BATCH_SIZE} in file order, {epochs}, {arguments.workers} workers",
        soft_wrap=True,
    )
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        # All libraries are imported and all datasets created before the first measurement.
        contenders, skipped = [], []
        for name in arguments.only or LIBRARIES:
            if absent := missing(*LIBRARIES[name]):
                skipped.append(f"{name} (needs {', '.join(absent)})")
                continue
            bar = progress.add_task(f"preparing {name}", total=num_images)
            contenders += importlib.import_module(f"mnist.with_{name}").contenders(
                data,
                batch_size=BATCH_SIZE,
                workers=arguments.workers,
                work=work,
                advance=lambda images, bar=bar: progress.advance(bar, images),
            )
            progress.remove_task(bar)
        results = []
        for contender in contenders:
            bar = progress.add_task(contender.name, total=arguments.epochs * num_images)
            results.append(
                train(
                    contender,
                    data,
                    epochs=arguments.epochs,
                    advance=lambda images, bar=bar: progress.advance(bar, images),
                )
            )
            progress.remove_task(bar)
    if results:
        console.print(table(results))
    if skipped:
        console.print(
            f"Not compared: {', '.join(skipped)}. Install all of them with {INSTALL}.",
            soft_wrap=True,
        )
    if not results:
        return 0
    title = "Sample of MNIST" if arguments.data is None else "MNIST"
    draw(results, f"{title}: {num_images:,} images, {epochs}", arguments.plot, console)
    if message := disagreement(results):
        sys.stderr.write(f"{message}\n")
        return 1
    if len(results) > 1:
        reason = "the same images in the same order"
        console.print(f"Test accuracy {results[0].accuracy} with every loader: {reason}.")
    return 0


def draw(results, title, path, console):
    """Save the plot, if matplotlib is installed."""
    if missing("matplotlib"):
        console.print(f"No plot, which needs matplotlib: {INSTALL}.", soft_wrap=True)
        return
    importlib.import_module("mnist.plot").plot(results, title).savefig(path)
    console.print(f"Plot: {path}", soft_wrap=True)


def missing(*packages):
    """Return the packages that are not installed."""
    return [package for package in packages if importlib.util.find_spec(package) is None]


def parse(argv):
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of MNIST's four idx files, .gz or not"
    )
    parser.add_argument(
        "--epochs", type=at_least(1), default=1, metavar="N", help="number of epochs (1)"
    )
    parser.add_argument(
        "--workers",
        type=at_least(0),
        default=0,
        metavar="N",
        help="worker processes of the loaders that have them: PyTorch and gristmill (0)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=LIBRARIES,
        metavar="NAME",
        help=f"one of {', '.join(LIBRARIES)}; may be repeated",
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="keep the TFDS files here for the next run"
    )
    parser.add_argument(
        "--plot",
        type=writable,
        default="mnist_five_ways.png",
        metavar="FILE",
        help="where to save the plot (mnist_five_ways.png)",
    )
    return parser.parse_args(argv)


def at_least(least):
    """Return the `type` of an argument that must be an integer of at least `least`."""

    def number(string):
        if not string.isdecimal() or int(string) < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {string!r}"
            )
        return int(string)

    return number


def writable(string):
    """Return the path of a file. It is checked before the training that it can be created."""
    path = Path(string)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"must be a file in a writable folder, got {string!r}")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
