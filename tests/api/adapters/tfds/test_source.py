"""The source over a TFDS split decodes records of each kind, and names those it cannot decode."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from gristmill import from_tfds
from gristmill.errors import CorruptFileError
from gristmill.testing import SourceSuite
from tests.api.adapters.tfds.tfds_builders import NUM_TRAIN, Images, Prepared, source_of


class TestDigitsInArrayRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Digits"), split="train[3:80]"))


class TestFactsInTFRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        dataset = from_tfds(prepared("Facts", "tfrecord"), split="train[3:80]", as_supervised=True)
        return source_of(dataset)


class TestImagesOfSeveralShapes(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Images"), split="train"))


class TestRaggedRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Ragged"), split="train"))


class TestNoRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Digits"), split="train[:0]"))


def test_cached_records_are_not_pickled(prepared: Prepared):
    source = source_of(from_tfds(prepared("Digits"), split="train"))

    source.__getitems__(range(NUM_TRAIN))

    assert len(pickle.dumps(source)) < 10_000 < NUM_TRAIN * 28 * 28


def test_a_record_that_tfds_cannot_decode_is_named(tmp_path: Path):
    dataset = from_tfds(undecodable(tmp_path), split="train")

    assert int(source_of(dataset)[2]["number"]) == 2
    with pytest.raises(
        CorruptFileError,
        match=r"(?s)could not decode.*images-train.*00000-of-00001.*record 3",
    ):
        list(dataset)


def undecodable(folder: Path) -> Any:
    """Return a builder whose record 3 does not hold an image."""

    class Broken(Images, skip_registration=True):
        name = "images"

        def record(self, number: int) -> dict[str, Any]:
            record = super().record(number)
            return {**record, "image": b"no image"} if number == 3 else record

    builder = Broken(data_dir=folder, file_format="array_record")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder.download_and_prepare()
    return builder
