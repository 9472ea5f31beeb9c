"""`from_tfds` yields the records of TFDS in the order of the files, and explains bad arguments."""

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import DataLoader, MapDataset, SequentialSampler, from_tfds
from gristmill.errors import MissingExtraError, PlanError, PlanTypeError
from gristmill.options import MultiprocessingOptions
from gristmill.testing._records import difference
from tests.api.adapters.tfds.tfds_builders import (
    BUILDERS,
    FORMATS,
    NUM_TEST,
    NUM_TRAIN,
    Prepared,
    check_same,
    records_of,
    source_of,
    tfds,
)


class TestRecords:
    @pytest.mark.parametrize("file_format", FORMATS)
    @pytest.mark.parametrize("kind", BUILDERS)
    def test_they_are_those_of_tfds(self, prepared: Prepared, kind: str, file_format: str):
        builder = prepared(kind, file_format)

        dataset = from_tfds(builder, split="train")

        expected = records_of(builder, "train")
        assert len(expected) == NUM_TRAIN
        check_same(expected, dataset)
        check_same(expected, [dataset[i] for i in range(NUM_TRAIN)])
        order = np.random.default_rng(0).permutation(NUM_TRAIN)
        shuffled = source_of(from_tfds(builder, split="train")).__getitems__(order)
        check_same([expected[i] for i in order], shuffled)

    @pytest.mark.parametrize("kind", ["Digits", "Facts", "Words"])
    def test_batches_are_those_of_as_numpy(self, prepared: Prepared, kind: str):
        builder = prepared(kind, "tfrecord")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_config = tfds.ReadConfig(interleave_cycle_length=1, skip_prefetch=True)
            batches = builder.as_dataset(split="train", read_config=read_config).batch(16)
            expected = list(tfds.as_numpy(batches))

        actual = list(from_tfds(builder, split="train").batch(16))

        assert len(actual) == len(expected)
        for one, other in zip(expected, actual, strict=True):
            check_same_values(one, other)

    @pytest.mark.parametrize("file_format", FORMATS)
    def test_a_dataset_can_be_passed_by_name(self, prepared: Prepared, file_format: str):
        builder = prepared("Digits", file_format)

        dataset = from_tfds("digits", split="test", data_dir=prepared.folder(file_format))

        check_same(records_of(builder, "test"), dataset)
        assert repr(source_of(dataset)) == "TfdsSource('digits/1.0.0', split='test')"

    def test_a_tfds_data_source_can_be_passed_to_a_loader_directly(self, prepared: Prepared):
        source = prepared("Digits").as_data_source("test")
        expected = list(source)

        check_same(expected, MapDataset.source(source))
        loader = DataLoader(data_source=source, sampler=SequentialSampler(NUM_TEST), worker_count=1)
        check_same(expected, loader)


def check_same_values(expected: Any, actual: Any) -> None:
    """Compare batches whose strings are objects in `expected`, and bytes of one width here."""
    assert type(expected) is type(actual)
    if isinstance(expected, dict):
        assert list(expected) == list(actual)
        for name, value in expected.items():
            check_same_values(value, actual[name])
    elif expected.dtype == object:
        assert [one.rstrip(b"\0") for one in expected] == [one.rstrip(b"\0") for one in actual]
    else:
        assert difference(expected, actual) is None


class TestAsSupervised:
    @pytest.mark.parametrize("file_format", FORMATS)
    def test_records_are_input_and_target(self, prepared: Prepared, file_format: str):
        builder = prepared("Digits", file_format)
        expected = [(one["image"], one["label"]) for one in records_of(builder, "test")]

        dataset = from_tfds(builder, split="test", as_supervised=True)

        check_same(expected, dataset)
        images, labels = next(iter(dataset.batch(NUM_TEST)))
        assert images.shape == (NUM_TEST, 28, 28, 1)
        assert labels.tolist() == [label for _, label in expected]

    def test_the_keys_can_be_a_tree_of_names(self, prepared: Prepared):
        builder = prepared("Facts")
        expected = [
            ({"more": one["nested"], "words": one["text"]}, one["label"], one["mask"])
            for one in records_of(builder, "test")
        ]

        check_same(expected, from_tfds(builder, split="test", as_supervised=True))

    def test_a_dataset_without_keys_is_an_error(self, prepared: Prepared):
        with pytest.raises(PlanError, match=r"does not define its input.*'box', 'packed'"):
            from_tfds(prepared("Boxes"), split="test", as_supervised=True)


class TestWorkers:
    @pytest.mark.parametrize(
        ("kind", "file_format"),
        [("Digits", "array_record"), ("Facts", "tfrecord"), ("Ragged", "array_record")],
    )
    def test_they_read_the_same_records_without_tensorflow(
        self, prepared: Prepared, kind: str, file_format: str, monkeypatch: pytest.MonkeyPatch
    ):
        dataset = from_tfds(prepared(kind, file_format), split="train")
        # Another environment, another fork server: one that has imported nothing for other plans.
        monkeypatch.setenv("GRISTMILL_TEST", f"{kind} {file_format}")

        def with_modules(record: Any) -> Any:  # not from this module, which imports TFDS
            names = ("tensorflow", "tensorflow_datasets")
            return record, os.getpid(), [name in sys.modules for name in names]

        stream = dataset.map(with_modules).to_iter_dataset()
        options = MultiprocessingOptions(num_workers=2)
        records, processes, modules = zip(*stream.mp_prefetch(options), strict=True)

        check_same(list(dataset), records)
        assert os.getpid() not in processes
        has_tensorflow, has_tfds = np.any(modules, axis=0)
        assert not has_tensorflow
        # Plain records are decoded without TFDS, which takes a second to import.
        assert has_tfds == (kind == "Ragged")


class TestErrors:
    def test_a_dataset_that_is_not_prepared(self, tmp_path: Path):
        builder = BUILDERS["Digits"](data_dir=tmp_path)

        with pytest.raises(PlanError, match=r'download_and_prepare\(file_format="array_record"\)'):
            from_tfds(builder, split="train")

    def test_an_unknown_name(self, tmp_path: Path):
        message = "knows no dataset named 'no_such_one', and there is none in"
        with pytest.raises(PlanError, match=message):
            from_tfds("no_such_one", split="train", data_dir=tmp_path)

    @pytest.mark.parametrize("split", ["validation", "train[", None, ["train"]])
    def test_an_unknown_split(self, prepared: Prepared, split: Any):
        with pytest.raises(
            PlanError, match=r"digits/1.0.0 has 'test', 'train'|has 'train', 'test'"
        ):
            from_tfds(prepared("Digits"), split=split)

    def test_an_unsupported_file_format(self, prepared: Prepared, tmp_path: Path):
        folder = tmp_path / "other"
        shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
        info = folder / "dataset_info.json"
        info.write_text(info.read_text().replace('"tfrecord"', '"riegeli"'))

        with pytest.raises(PlanError, match=r"format 'riegeli'.*Prepare it again"):
            from_tfds(tfds.builder_from_directory(folder), split="train")

    def test_a_tensorflow_dataset(self, prepared: Prepared):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = prepared("Digits", "tfrecord").as_dataset(split="train")

        with pytest.raises(PlanTypeError, match="pass the builder that made it"):
            from_tfds(dataset, split="train")

    def test_a_tfds_data_source(self, prepared: Prepared):
        with pytest.raises(PlanTypeError, match=r"can be passed to `MapDataset.source`"):
            from_tfds(prepared("Digits").as_data_source("train"), split="train")

    def test_an_object_of_another_type(self):
        with pytest.raises(PlanTypeError, match=r"got int. Use `tfds.builder"):
            from_tfds(3, split="train")

    def test_a_folder_with_a_builder(self, prepared: Prepared, tmp_path: Path):
        with pytest.raises(PlanError, match=r"a builder has its own. Leave it out"):
            from_tfds(prepared("Digits"), split="train", data_dir=tmp_path)

    def test_a_missing_package(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)

        with pytest.raises(MissingExtraError, match=r"pip install .gristmill\[tfds\]."):
            from_tfds("mnist", split="train")
