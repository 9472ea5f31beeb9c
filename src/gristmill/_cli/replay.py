"""`gristmill replay`: print the element at a step of a pipeline, and the records in it."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.ledgers.replay import replay_ledger
from gristmill._api.loader.loader import DataLoader
from gristmill._base.trees.tree import leaves_with_paths
from gristmill._checkpoint.ledger_file import find_ledgers, read_ledger, shard_file
from gristmill._cli.element_page import element_page
from gristmill._cli.pipelines import PIPELINE_HELP, Pipeline, import_pipeline
from gristmill._engine.provenance.origin import Provenance
from gristmill._io.folders.write_output import write_output
from gristmill._printable import printable
from gristmill.errors import PlanError, ProvenanceError
from gristmill.options import ShardOptions
from gristmill.types import Element

_MAX_VALUE_LENGTH = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `replay` to its parser."""
    parser.description = (
        "Show the element at a step of a pipeline, and the records that it was made of."
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help=PIPELINE_HELP)
    parser.add_argument(
        "--step", type=int, metavar="N", help="the number of the element, starting at 0"
    )
    parser.add_argument(
        "--shard", metavar="I/N", help="the element of another shard of a loader, such as 3/64"
    )
    parser.add_argument(
        "--ledger",
        metavar="RUN",
        help="compare with the ledger of a run, in its folder or a file: the step N, or all steps",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page that shows the element")
    parser.set_defaults(
        run=_run,
        flags={"step": "--step", "shard": "--shard", "pipeline": "PIPELINE", "html": "--html"},
    )


def _run(arguments: argparse.Namespace) -> int:
    pipeline = import_pipeline(arguments.pipeline)
    shard = None if arguments.shard is None else _parse_shard(arguments.shard)
    if arguments.step is None and (arguments.ledger is None or arguments.html is not None):
        raise PlanError("`step` is missing: pass the number of the element to show.")
    if arguments.step is not None and arguments.step < 0:
        raise PlanError(f"`step` must be at least 0, got {arguments.step}.")
    if arguments.ledger is not None:
        return _compare(pipeline, arguments, shard)
    assert arguments.step is not None, "only a ledger is replayed without a step"
    with _iterator_at(pipeline, arguments.step, shard) as iterator:
        try:
            element = next(iterator)
        except StopIteration:
            raise PlanError(f"There is no element at step {arguments.step}.") from None
        _show(arguments, element, iterator.provenance)
    return 0


def _compare(pipeline: Pipeline, arguments: argparse.Namespace, shard: ShardOptions | None) -> int:
    """Compare the ledgers of a run with the elements, and return the exit status."""
    paths = find_ledgers(Path(arguments.ledger))
    if shard is not None:
        wanted = shard_file(Path(), (shard.shard_index, shard.shard_count)).name
        paths = [path for path in paths if path.name == wanted]
        if not paths:
            raise PlanError(f"`shard` has no ledger: there is no file {wanted}.")
    differs = False
    for path in paths:
        count, problem = 0, None
        for replayed in replay_ledger(pipeline, read_ledger(path), arguments.step):
            count += 1
            problem = replayed.problem
            if arguments.step is not None:
                _show(arguments, replayed.element, replayed.provenance, problem or _IDENTICAL)
            if problem is not None:
                _write([f"{path}: step {replayed.line.step} differs: {problem}"])
                break
        differs |= problem is not None
        if problem is None and arguments.step is None:
            _write([f"{path}: all {count} steps are bit-identical"])
    return int(differs)


_IDENTICAL = "bit-identical to the ledger"


def _show(
    arguments: argparse.Namespace,
    element: Element,
    find_provenance: Callable[[], Provenance],
    verdict: str = "",
) -> None:
    """Print an element and its records, or write them to a page."""
    try:
        provenance: Provenance | str = find_provenance()
    except ProvenanceError as error:
        provenance = str(error)
    title = f"step {arguments.step}"
    if arguments.html is not None:
        page = element_page(f"{arguments.pipeline}, {title}", element, provenance, verdict)
        write_output(arguments.html, [page.encode("utf-8", "backslashreplace")], name="page")
        _write([f"{title} is in {arguments.html}"])
        return
    _write([f"{title}{', ' if verdict else ''}{verdict}"])
    _write([f"  {line}" for line in [*_describe(element), *str(provenance).splitlines()]])


def _write(lines: list[str]) -> None:
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def _iterator_at(pipeline: Pipeline, step: int, shard: ShardOptions | None) -> Any:
    if isinstance(pipeline, DataLoader):
        try:
            return pipeline.from_step(step, shard=shard)
        except IndexError as error:
            raise PlanError(str(error)) from None
    if shard is not None:
        raise PlanError("`shard` needs a `DataLoader`: the shard of a dataset is one of its steps.")
    stream = pipeline.to_iter_dataset() if isinstance(pipeline, MapDataset) else pipeline
    try:
        return stream.from_step(step)
    except IndexError as error:
        raise PlanError(str(error)) from None


def _parse_shard(shard: str) -> ShardOptions:
    try:
        index, count = map(int, shard.split("/"))
    except ValueError:
        raise PlanError(f"`shard` must be written as 3/64, got {shard!r}.") from None
    return ShardOptions(index, count)


def _describe(element: Element) -> list[str]:
    """Return a line for each leaf of an element."""
    lines: list[str] = []
    for path, leaf in leaves_with_paths(element, "element"):
        value: Any = leaf
        kind = type(value).__name__
        if isinstance(leaf, np.ndarray):
            kind = f"{value.dtype} {value.shape}"
        shown = " ".join(repr(value).split())
        if len(shown) > _MAX_VALUE_LENGTH:
            shown = f"{shown[:_MAX_VALUE_LENGTH]}..."
        lines.append(f"{path}: {kind} {shown}")
    return lines
