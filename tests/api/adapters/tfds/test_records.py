"""The records of any split are found in its files, and damaged files are named with the record."""

import shutil
from pathlib import Path

import pytest

from gristmill import from_tfds
from gristmill.errors import CorruptFileError
from tests.api.adapters.tfds.tfds_builders import (
    FORMATS,
    Prepared,
    check_same,
    damage,
    records_of,
    tfds,
)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("split", ["train", "test", "train[:10%]", "train[25:63]", "test+train",
    "train[80:]+train[:5]", "all", "train[:0]", "train[-10:]"])  # fmt: skip
def test_slices_and_sums_of_splits_have_the_records_of_tfds(
    prepared: Prepared, file_format: str, split: str
):
    builder = prepared("Words", file_format)

    dataset = from_tfds(builder, split=split)

    expected = records_of(builder, split) if split != "train[:0]" else []
    check_same(expected, dataset)
    assert len(dataset) == len(expected)


@pytest.mark.parametrize("file_format", FORMATS)
def test_instructions_and_even_splits_have_the_records_of_tfds(
    prepared: Prepared, file_format: str
):
    builder = prepared("Digits", file_format)
    instruction = tfds.core.ReadInstruction("train", from_=10, to=50, unit="%")

    check_same(records_of(builder, "train[10%:50%]"), from_tfds(builder, split=instruction))
    check_same(records_of(builder, "test"), from_tfds(builder, split=tfds.Split("test")))
    datasets = [from_tfds(builder, split=split) for split in tfds.even_splits("train", 4)]
    assert [len(dataset) for dataset in datasets] == [23, 23, 22, 22]
    check_same(records_of(builder, "train"), [one for dataset in datasets for one in dataset])


def test_a_damaged_file_is_named_with_the_record(prepared: Prepared, tmp_path: Path):
    builder = damage(prepared, tmp_path / "damaged", "Facts", "tfrecord")
    dataset = from_tfds(builder, split="train")

    with pytest.raises(CorruptFileError, match=r"facts-train.tfrecord-00000-of-00003.*record 4"):
        list(dataset)
    check_same(records_of(prepared("Facts"), "train[:4]"), [dataset[i] for i in range(4)])


def test_a_damaged_array_record_file_is_named_with_the_record(prepared: Prepared, tmp_path: Path):
    builder = damage(prepared, tmp_path / "damaged", "Digits", "array_record")

    with pytest.raises(
        CorruptFileError, match=r"digits-train.array_record-00000-of-00003.*record \d+\)"
    ):
        list(from_tfds(builder, split="train").batch(45))


def test_files_with_another_number_of_records_are_an_error(prepared: Prepared, tmp_path: Path):
    folder = tmp_path / "less"
    shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
    first, second, _ = sorted(folder.glob("digits-train.tfrecord-*-of-00003"))
    size = 16 + int.from_bytes(first.read_bytes()[:8], "little")
    second.write_bytes(second.read_bytes() + first.read_bytes()[:size])
    dataset = from_tfds(tfds.builder_from_directory(folder), split="train")

    with pytest.raises(CorruptFileError, match="hold 91 records, but TFDS counted 90"):
        dataset[0]
