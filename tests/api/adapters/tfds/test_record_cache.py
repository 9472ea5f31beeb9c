"""Decoded records of a small split are cached, together with records that are read ahead."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gristmill import from_tfds
from gristmill._api.adapters.tfds.layout import FieldSpec, RecordLayout
from gristmill._api.adapters.tfds.record_cache import MAX_CACHE_BYTES, RecordCache
from gristmill.errors import CorruptFileError
from tests.api.adapters.tfds.tfds_builders import Prepared, check_same, damage, source_of, tfds


def test_cached_records_are_not_read_again(prepared: Prepared, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
    dataset = from_tfds(tfds.builder_from_directory(folder), split="train").batch(10)
    before = list(dataset)

    for file in folder.glob("*.tfrecord-*-of-00003"):
        file.write_bytes(b"")

    check_same(before, dataset)


def test_an_element_is_a_copy_of_the_cached_record(prepared: Prepared):
    source = source_of(from_tfds(prepared("Digits"), split="train"))
    first = source[0]

    first["image"][:] = 99

    assert not (source[0]["image"] == 99).any()


def test_a_damaged_record_that_is_only_read_ahead_is_no_error(prepared: Prepared, tmp_path: Path):
    builder = damage(prepared, tmp_path / "damaged", "Digits", "tfrecord")

    source = source_of(from_tfds(builder, split="train"))

    # Records after the range are read ahead, including the damaged one.
    records = source.read_columns(range(2)).rows()
    assert [int(one["label"]) for one in records] == [0, 1]
    with pytest.raises(CorruptFileError):
        source[4]


NUMBERS = RecordLayout(0, [FieldSpec(("x",), (2,), np.dtype(np.int64), "numbers")])
STRINGS = RecordLayout(0, [FieldSpec(("x",), (), None, "string")])


def test_only_records_of_a_fixed_and_small_size_are_cached():
    assert RecordCache.for_records(NUMBERS, MAX_CACHE_BYTES // 16) is not None
    assert RecordCache.for_records(NUMBERS, MAX_CACHE_BYTES // 16 + 1) is None
    assert RecordCache.for_records(STRINGS, 1) is None


def test_read_ahead_follows_the_step_and_leaves_out_cached_records():
    cache = RecordCache(NUMBERS, 10, record_bytes=2**19)  # so that four records are read ahead
    rows = np.array([6, 3])
    cache.store(rows, [np.array([[6, 6], [3, 3]])], np.array([True, False]))  # 3 does not fit

    assert cache.find_missing(np.array([6, 3, 0, 3])).tolist() == [0, 3]
    assert cache.add_read_ahead(np.array([0]), step=3).tolist() == [0, 3, 9]
    assert cache.columns[0][6].tolist() == [6, 6]
