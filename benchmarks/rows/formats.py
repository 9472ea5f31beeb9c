"""Shuffled records from files: ArrayRecord, TFRecord, tar, Parquet."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import _files
from benchmarks._check import check_batch_sizes, check_shuffled
from benchmarks._clock import time_epoch
from benchmarks._model import Contender, Measurement, Role, Row, Settings, Target, contender


def numbers_of(records: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the numbers at the start of the records."""
    return np.frombuffer(b"".join([record[:8] for record in records]), "<i8")


def measure_records(
    program: Callable[..., Any], contender: Contender, settings: Settings
) -> Measurement:
    """Measure an epoch of lists of records. Check each number, and in the first round each byte."""
    start = program(settings.data, **contender.arguments)
    epoch = time_epoch(start, numbers_of, settings.max_seconds)
    size = contender.arguments.get("size", _files.BATCH_SIZE)
    check_batch_sizes(epoch, size, _files.NUM_RECORDS)
    check_shuffled(epoch, np.arange(_files.NUM_RECORDS))
    if settings.verify:
        expected = set(_files.make_records())
        for batch, _ in zip(start(), range(100), strict=False):
            if not expected.issuperset(batch):
                raise AssertionError("A record is not one of the file.")
    return Measurement(
        metrics={"records_per_s": epoch.rate}, records=epoch.timed, complete=epoch.complete
    )


def measure_rows(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, name: str
) -> Measurement:
    """Measure the preparation and an epoch of batches of rows, and check each id."""
    begin = time.perf_counter()
    start = program(_files.table(settings.data, name), settings.data, **contender.arguments)
    prepared = time.perf_counter() - begin
    epoch = time_epoch(start, lambda batch: np.asarray(batch["id"]), settings.max_seconds)
    check_batch_sizes(epoch, _files.BATCH_SIZE, _files.NUM_ROWS)
    check_shuffled(epoch, np.arange(_files.NUM_ROWS))
    return Measurement(
        metrics={"records_per_s": epoch.rate, "prepare_s": prepared},
        records=epoch.timed,
        complete=epoch.complete,
    )


_READ = "array_record:read"
_OURS = contender(
    "gristmill",
    "ArrayRecordDataSource",
    Role.OURS,
    "gristmill",
    "gristmill_formats:records",
    ending="array_record",
)

ARRAY_RECORD = Row(
    name="array_record",
    title="ArrayRecord, 1 kB records, shuffled, batches of 128",
    data="records",
    measure=measure_records,
    contenders=(
        contender("Grain", "default threads", Role.PEER, "grain", "grain:records"),
        contender("Grain", "num_threads=0", Role.PEER, "grain", "grain:records", num_threads=0),
        contender("limit", "read() of 128", Role.LIMIT, "array_record", _READ, size=128),
        contender("limit", "read() of 1,024", Role.LIMIT, "array_record", _READ, size=1024),
        contender("limit", "read() of 4,096", Role.LIMIT, "array_record", _READ, size=4096),
        _OURS,
    ),
    targets=(Target(times=10, of="Grain"), Target(times=0.7, of="limit")),
    note=(
        "The limit is the batched read of the library itself, file by file, of the given number of "
        "records."
    ),
)


def _against_array_record(name: str, title: str, ending: str, source: str) -> Row:
    base = contender(
        "gristmill",
        "ArrayRecordDataSource",
        Role.BASE,
        "gristmill",
        "gristmill_formats:records",
        ending="array_record",
    )
    ours = contender(
        "gristmill", source, Role.OURS, "gristmill", "gristmill_formats:records", ending=ending
    )
    return Row(
        name=name,
        title=title,
        data="records",
        measure=measure_records,
        contenders=(base, ours),
        targets=(Target(times=0.5, of="base"),),
        note="The index of the files is created before the measurement.",
    )


TFRECORD = _against_array_record(
    "tfrecord", "TFRecord, the same records, shuffled", "tfrecord", "TFRecordSource"
)
TAR = _against_array_record("tar", "tar, the same records, shuffled", "tar", "TarSource")


def _parquet(name: str, title: str) -> Row:
    return Row(
        name=f"parquet_{name}",
        title=title,
        data="table",
        measure=partial(measure_rows, name=name),
        contenders=(
            contender("HF", "NumPy format", Role.PEER, "datasets", "huggingface:parquet"),
            contender(
                "HF", "Python values", Role.PEER, "datasets", "huggingface:parquet", numpy=False
            ),
            contender(
                "gristmill", "ParquetSource", Role.OURS, "gristmill", "gristmill_formats:parquet"
            ),
        ),
        targets=(Target(times=10, of="HF"),),
        metrics={"records_per_s": "records/s", "prepare_s": "preparation, s"},
        note=(
            "Before the measurement, HF converts the file to an Arrow file, which later runs "
            "reuse, and ParquetSource decodes its row groups into memory."
        ),
    )


PARQUET_NUMBERS = _parquet(
    "numbers", "Parquet, rows of an id, 16 floats and a label, shuffled, batch 128"
)
PARQUET_STRINGS = _parquet("strings", "The same with a string of 20 to 200 characters")
