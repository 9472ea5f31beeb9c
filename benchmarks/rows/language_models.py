"""Pipelines for language models: files, tokens, packing, batches, and mixtures of sources."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _corpus
from benchmarks._check import check_workers
from benchmarks._clock import time_epoch, time_steady
from benchmarks._documents import check_whole, make_documents
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender

WARM_UP = 16
"""Batches before the measured time: the first 64 bins of each of two workers of Grain."""


TEXT_SECONDS = 3
"""How much longer contenders that tokenize are measured. Packing passes on 64 full bins at a time,
which takes half a second of tokenizing: a few seconds would be a few such bursts."""


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure the tokens of an epoch, or of its steady state if there are workers; check them."""
    start = program(settings.data, **contender.arguments)
    is_tokens = (
        contender.arguments.get("kind", "tokens") == "tokens" and contender.role is not Role.LIMIT
    )
    max_seconds = settings.max_seconds * (1 if is_tokens else TEXT_SECONDS)
    if contender.worker_count:
        epoch = time_steady(start, lambda batch: batch["tokens"], max_seconds, warm_up=WARM_UP)
        check_workers(epoch.workers, contender.worker_count)
    else:
        epoch = time_epoch(start, lambda batch: batch["tokens"], max_seconds)
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


def _against_grain(*forms: str) -> tuple[Target, ...]:
    """Return a target for each form of Grain: its default, and the one that its users can find."""
    return tuple(Target(times=10, of=f"Grain, {form}") for form in forms)


TOKENS = _row(
    "packed_tokens",
    "Tokens in ArrayRecord, shuffled, first-fit packing into rows of 2,048, batch 8",
    _grain("default threads", kind="tokens"),
    _grain("num_threads=0", kind="tokens", num_threads=0),
    _ours("default", kind="tokens"),
    targets=_against_grain("default threads", "num_threads=0"),
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


TABLE = _row(
    "packed_table",
    "The same texts in Parquet, in order, tokenized, first-fit packing, batch 8",
    _grain("default", "packed_table", kind="texts"),
    contender("limit", "tokenizer", Role.LIMIT, "tokenizers", "limit_tokenizer:one_by_one"),
    _ours("map", "packed_table", role=Role.BASE, kind="texts"),
    _ours("map_rows", "packed_table_many", kind="texts"),
    targets=(Target(times=2, of="Grain"), Target(times=0.9, of="limit")),
    note="Grain reads Parquet row by row and has no threads to set for it.",
)


def _with_workers(kind: str, count: int) -> Row:
    plural = "worker" if count == 1 else "workers"
    ours = (_ours(f"{count} {plural}", kind=kind, worker_count=count),)
    targets = _against_grain(f"{count} {plural}", f"{count} {plural}, num_threads=0")
    if kind == "texts":
        processes = "process" if count == 1 else "processes"
        ours = (
            contender(
                "limit",
                f"tokenizer in {count} {processes}",
                Role.LIMIT,
                "tokenizers",
                "limit_tokenizer:in_processes",
                count=count,
            ),
            _ours(f"{count} {plural}, map", kind=kind, worker_count=count),
            _ours(f"{count} {plural}, map_rows", "packed_many", kind=kind, worker_count=count),
        )
        targets = (Target(times=1, of="Grain"), Target(times=0.9, of="limit"))
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
        *ours,
        targets=targets,
    )


WITH_WORKERS = tuple(_with_workers(kind, count) for kind in ("tokens", "texts") for count in (1, 2))
MIXTURE = _row(
    "mixed_windows",
    "A mixture of 4 endless sources of tokens, packed in windows of 64 documents, batch 8",
    _grain("default threads", "mixture"),
    _grain("num_threads=0", "mixture", num_threads=0),
    _ours("default", "mixture"),
    targets=_against_grain("default threads", "num_threads=0"),
    note="The stream has no end, so the rate is that of the first seconds.",
)
ROWS = (TOKENS, TEXTS, TABLE, *WITH_WORKERS, MIXTURE)
