"""Pack documents of many lengths into rows of one length, as for language models."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks._clock import time_epoch
from benchmarks._documents import check_whole, make_documents
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender


def measure(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, may_split: bool
) -> Measurement:
    """Measure an epoch of rows, and check every token."""
    documents = make_documents()
    start = program(documents, **contender.arguments)
    epoch = time_epoch(start, lambda row: row["tokens"], settings.max_seconds)
    count = check_whole(epoch, documents, may_split=may_split)
    return Measurement(
        metrics={"records_per_s": count / epoch.seconds}, records=count, complete=epoch.complete
    )


def _row(name: str, title: str, packer: str, *, may_split: bool) -> Row:
    return Row(
        name=name,
        title=title,
        measure=partial(measure, may_split=may_split),
        contenders=(
            contender(
                "Grain", "default threads", Role.PEER, "grain", "grain:packing", packer=packer
            ),
            contender(
                "Grain",
                "num_threads=0",
                Role.PEER,
                "grain",
                "grain:packing",
                packer=packer,
                num_threads=0,
            ),
            contender("limit", "next row", Role.LIMIT, "numpy", "limit:packing"),
            contender(
                "gristmill", "default", Role.OURS, "gristmill", "gristmill:packing", packer=packer
            ),
        ),
        targets=(
            Target(times=50, of="Grain, default threads"),
            Target(times=10, of="Grain, num_threads=0"),
        ),
        note=(
            "Grain reads with 16 threads by default, which costs it most of the time "
            "here, so its two settings have a target each. "
            "The limit is a plain loop that writes each document to the current row or the next "
            "one, with segment ids and positions, without a choice of bins."
        ),
        metrics={"records_per_s": "documents/s"},
    )


FIRST_FIT = _row(
    "packing_first_fit",
    "First-fit packing: 100k documents of lognormal lengths into rows of 2,048, 64 bins",
    "first_fit",
    may_split=False,
)
BEST_FIT = _row(
    "packing_best_fit",
    "Best-fit packing: the same documents",
    "best_fit",
    may_split=False,
)
CONCAT_THEN_SPLIT = _row(
    "concat_then_split",
    "Concatenate, then split: the same documents into rows of 2,048",
    "concat_then_split",
    may_split=True,
)
