"""Pipelines for language models: files, tokens, packing, batches, and mixtures of sources."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _corpus
from benchmarks._check import check_workers
from benchmarks._clock import time_epoch, time_steady
from benchmarks._documents import check_whole, make_documents
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

WARM_UP = 8


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the tokens of an epoch, or of its steady state if there are workers; check them."""
    start = program(settings.data, **contender.arguments)
    if contender.worker_count:
        epoch = time_steady(
            start, lambda batch: batch["tokens"], settings.max_seconds, warm_up=WARM_UP
        )
        check_workers(epoch.workers, contender.worker_count)
    else:
        epoch = time_epoch(start, lambda batch: batch["tokens"], settings.max_seconds)
    count = int(np.count_nonzero(epoch.values[-epoch.timed :]))
    if contender.arguments.get("kind") == "tokens":
        check_whole(epoch, make_documents(), may_split=False)
    elif epoch.complete and settings.verify:
        expected = _corpus.expected_tokens(settings.data)
        if np.count_nonzero(epoch.values) != expected:
            raise AssertionError(f"Expected {expected} tokens, got {count}.")
    return Measurement(
        metrics={"records_per_s": count / epoch.seconds}, records=count, complete=epoch.complete
    )


def _grain(how: str, program: str = "packed", **arguments: Any) -> Contender:
    name = f"grain_language_models:{program}"
    return contender("Grain", how, Role.PEER, "grain", name, **arguments)


def _ours(how: str, program: str = "packed", role: Role = Role.OURS, **arguments: Any) -> Contender:
    name = f"gristmill_language_models:{program}"
    return contender("gristmill", how, role, "gristmill", name, **arguments)


def _row(
    name: str, title: str, *contenders: Contender, targets: tuple[Target, ...], note: str = ""
) -> Row:
    return Row(
        name=name,
        title=title,
        measure=measure,
        contenders=contenders,
        targets=targets,
        metrics={"records_per_s": "tokens/s"},
        data="corpus",
        note=note,
    )


TOKENS = _row(
    "packed_tokens",
    "Tokens in ArrayRecord, shuffled, first-fit packing into rows of 2,048, batch 8",
    _grain("default threads", kind="tokens"),
    _grain("num_threads=0", kind="tokens", num_threads=0),
    _ours("default", kind="tokens"),
    targets=(Target(times=10, of="Grain"),),
)
TEXTS = _row(
    "packed_texts",
    "Texts in ArrayRecord, shuffled, tokenized (BPE), first-fit packing, batch 8",
    _grain("default threads", kind="texts"),
    _grain("num_threads=0", kind="texts", num_threads=0),
    contender("limit", "tokenizer", Role.LIMIT, "tokenizers", "limit_tokenizer:one_by_one"),
    _ours("map", role=Role.BASE, kind="texts"),
    _ours("map_rows", "packed_many", kind="texts"),
    targets=(Target(times=2, of="Grain"), Target(times=0.9, of="limit")),
    note=(
        "The limit tokenizes the same texts one by one, without shuffling or packing. "
        "`map_rows` passes the texts of a block in one call, which uses all cores."
    ),
)


def _with_workers(kind: str, count: int) -> Row:
    plural = "worker" if count == 1 else "workers"
    return _row(
        f"packed_{kind}_{count}_{plural}",
        f"The same {kind} with {count} {plural}",
        _grain(f"{count} {plural}", kind=kind, worker_count=count, streams=count),
        _grain(
            f"{count} {plural}, num_threads=0",
            kind=kind,
            worker_count=count,
            num_threads=0,
            streams=count,
        ),
        _ours(f"{count} {plural}", kind=kind, worker_count=count),
        targets=(Target(times=10 if kind == "tokens" else 1, of="Grain"),),
    )


WITH_WORKERS = tuple(_with_workers(kind, count) for kind in ("tokens", "texts") for count in (1, 2))
MIXTURE = _row(
    "mixed_windows",
    "A mixture of 4 endless sources of tokens, packed in windows of 64 documents, batch 8",
    _grain("default threads", "mixture"),
    _grain("num_threads=0", "mixture", num_threads=0),
    _ours("default", "mixture"),
    targets=(Target(times=10, of="Grain"),),
    note="The stream has no end, so the rate is that of the first seconds.",
)
ROWS = (TOKENS, TEXTS, *WITH_WORKERS, MIXTURE)
