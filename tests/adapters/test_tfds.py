"""`from_tfds` gives what TFDS gives, in the order of the files, and says what is wrong."""

import os
import pickle
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import DataLoader, MapDataset, SequentialSampler, from_tfds
from gristmill.errors import CorruptFileError, MissingExtraError, PlanError, PlanTypeError
from gristmill.options import MultiprocessingOptions
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference
from tests.adapters.tfds_builders import (
    BUILDERS,
    FORMATS,
    NUM_TEST,
    NUM_TRAIN,
    Pictures,
    Prepared,
    tfds,
)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("tfds"))


def source_of(dataset: MapDataset[Any]) -> Any:
    return dataset.node.source  # pyright: ignore


def in_numpy(value: Any, info: Any) -> Any:
    """Give what a data source of TFDS gives with its numbers in the types that the features say."""
    if isinstance(info, dict):
        return {name: in_numpy(value[name], info[name]) for name in value}
    if isinstance(value, bool | int | float):
        return np.dtype(info.np_dtype).type(value)
    return value


def records_of(builder: Any, split: Any) -> list[Any]:
    """Give the records as TFDS's own functions decode them."""
    features = builder.info.features
    if builder.info.file_format.value == "array_record":
        made = list(builder.as_data_source(split))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow as tf  # noqa: PLC0415
        made: list[Any] = []
        for part in builder.info.splits[split].file_instructions:
            raw = tf.data.TFRecordDataset(part.filename).skip(part.skip).take(part.take)
            made += [features.deserialize_example_np(one) for one in raw.as_numpy_iterator()]
    return [in_numpy(record, features.get_tensor_info()) for record in made]


def check_same(expected: list[Any], got: Any) -> None:
    got = list(got)
    assert len(got) == len(expected)
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        assert difference(one, other, f"record {number}") is None


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
            there = builder.as_dataset(split="train", read_config=read_config).batch(16)
            expected = list(tfds.as_numpy(there))

        got = list(from_tfds(builder, split="train").batch(16))

        assert len(got) == len(expected)
        for one, other in zip(expected, got, strict=True):
            check_same_values(one, other)

    @pytest.mark.parametrize("file_format", FORMATS)
    @pytest.mark.parametrize("split", ["train", "test", "train[:10%]", "train[25:63]", "test+train",
        "train[80:]+train[:5]", "all", "train[:0]", "train[-10:]"])  # fmt: skip
    def test_of_a_part_of_a_split(self, prepared: Prepared, file_format: str, split: str):
        builder = prepared("Words", file_format)

        dataset = from_tfds(builder, split=split)

        expected = records_of(builder, split) if split != "train[:0]" else []
        check_same(expected, dataset)
        assert len(dataset) == len(expected)

    @pytest.mark.parametrize("file_format", FORMATS)
    def test_of_instructions_and_even_splits(self, prepared: Prepared, file_format: str):
        builder = prepared("Digits", file_format)
        instruction = tfds.core.ReadInstruction("train", from_=10, to=50, unit="%")

        check_same(records_of(builder, "train[10%:50%]"), from_tfds(builder, split=instruction))
        check_same(records_of(builder, "test"), from_tfds(builder, split=tfds.Split("test")))
        parts = [from_tfds(builder, split=part) for part in tfds.even_splits("train", 4)]
        assert [len(part) for part in parts] == [23, 23, 22, 22]
        check_same(records_of(builder, "train"), [one for part in parts for one in part])

    @pytest.mark.parametrize("file_format", FORMATS)
    def test_of_a_dataset_that_is_named(self, prepared: Prepared, file_format: str):
        builder = prepared("Digits", file_format)

        dataset = from_tfds("digits", split="test", data_dir=prepared.folder(file_format))

        check_same(records_of(builder, "test"), dataset)
        assert repr(source_of(dataset)) == "TfdsSource('digits/1.0.0', split='test')"

    def test_data_sources_of_tfds_are_taken_as_they_are(self, prepared: Prepared):
        source = prepared("Digits").as_data_source("test")
        expected = list(source)

        check_same(expected, MapDataset.source(source))
        loader = DataLoader(data_source=source, sampler=SequentialSampler(NUM_TEST), worker_count=1)
        check_same(expected, loader)


def check_same_values(expected: Any, got: Any) -> None:
    """Compare batches: texts are objects there, and bytes of one width here."""
    assert type(expected) is type(got)
    if isinstance(expected, dict):
        assert list(expected) == list(got)
        for name, value in expected.items():
            check_same_values(value, got[name])
    elif expected.dtype == object:
        assert [text.rstrip(b"\0") for text in expected] == [text.rstrip(b"\0") for text in got]
    else:
        assert difference(expected, got) is None


class TestAsSupervised:
    @pytest.mark.parametrize("file_format", FORMATS)
    def test_it_gives_input_and_target(self, prepared: Prepared, file_format: str):
        builder = prepared("Digits", file_format)
        expected = [(one["image"], one["label"]) for one in records_of(builder, "test")]

        dataset = from_tfds(builder, split="test", as_supervised=True)

        check_same(expected, dataset)
        images, labels = next(iter(dataset.batch(NUM_TEST)))
        assert images.shape == (NUM_TEST, 28, 28, 1)
        assert labels.tolist() == [label for _, label in expected]

    def test_of_a_tree_of_names(self, prepared: Prepared):
        builder = prepared("Facts")
        expected = [
            ({"more": one["nested"], "said": one["text"]}, one["label"], one["mask"])
            for one in records_of(builder, "test")
        ]

        check_same(expected, from_tfds(builder, split="test", as_supervised=True))

    def test_of_a_dataset_that_names_none(self, prepared: Prepared):
        with pytest.raises(PlanError, match=r"does not say what is input.*'box', 'packed'"):
            from_tfds(prepared("Boxes"), split="test", as_supervised=True)


class TestWorkers:
    @pytest.mark.parametrize(
        ("kind", "file_format"),
        [("Digits", "array_record"), ("Facts", "tfrecord"), ("Ragged", "array_record")],
    )
    def test_they_give_the_same_without_tensorflow(
        self, prepared: Prepared, kind: str, file_format: str
    ):
        dataset = from_tfds(prepared(kind, file_format), split="train")

        def with_modules(record: Any) -> Any:  # not of this module, which imports TFDS
            names = ("tensorflow", "tensorflow_datasets")
            return record, os.getpid(), [name in sys.modules for name in names]

        there = dataset.map(with_modules).to_iter_dataset()
        options = MultiprocessingOptions(num_workers=2)
        records, processes, modules = zip(*there.mp_prefetch(options), strict=True)

        check_same(list(dataset), records)
        assert os.getpid() not in processes
        has_tensorflow, has_tfds = np.any(modules, axis=0)
        assert not has_tensorflow
        # Of plain records nothing is left to TFDS, which takes a second to import.
        assert has_tfds == (kind == "Ragged")

    def test_nothing_that_was_decoded_travels_to_them(self, prepared: Prepared):
        source = source_of(from_tfds(prepared("Digits"), split="train"))

        source.__getitems__(range(NUM_TRAIN))

        assert len(pickle.dumps(source)) < 10_000 < NUM_TRAIN * 28 * 28


class TestKept:
    def test_what_was_decoded_is_not_read_again(self, prepared: Prepared, tmp_path: Path):
        folder = tmp_path / "there"
        shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
        dataset = from_tfds(tfds.builder_from_directory(folder), split="train").batch(10)
        before = list(dataset)

        for file in folder.glob("*.tfrecord-*-of-00003"):
            file.write_bytes(b"")

        check_same(before, dataset)

    def test_what_is_given_is_a_copy(self, prepared: Prepared):
        source = source_of(from_tfds(prepared("Digits"), split="train"))
        first = source[0]

        first["image"][:] = 99

        assert not (source[0]["image"] == 99).any()

    def test_of_one_record_no_other_need_be_whole(self, prepared: Prepared, tmp_path: Path):
        builder = damaged(prepared, tmp_path, "Digits", "tfrecord")

        source = source_of(from_tfds(builder, split="train"))

        # A range is read with some that follow, the damaged one among them.
        asked = source.read_columns(range(2)).rows()
        assert [int(one["label"]) for one in asked] == [0, 1]
        with pytest.raises(CorruptFileError):
            source[4]


def damaged(prepared: Prepared, tmp_path: Path, kind: str, file_format: str) -> Any:
    """Give a builder over a copy whose first file is damaged: of TFRecords, the fifth of them."""
    folder = tmp_path / "damaged"
    shutil.copytree(prepared(kind, file_format).data_path, folder)
    builder = tfds.builder_from_directory(folder)
    path = Path(builder.info.splits["train"].file_instructions[0].filename)
    data = bytearray(path.read_bytes())
    at = 2000  # among the first of the records
    if file_format == "tfrecord":
        at = 0
        for _ in range(4):
            at += 16 + int.from_bytes(data[at : at + 8], "little")
        at += 20
    for place in range(at, at + 8):
        data[place] ^= 255
    path.write_bytes(data)
    return builder


class TestErrors:
    def test_a_dataset_that_is_not_prepared(self, tmp_path: Path):
        builder = BUILDERS["Digits"](data_dir=tmp_path)

        with pytest.raises(PlanError, match=r'download_and_prepare\(file_format="array_record"\)'):
            from_tfds(builder, split="train")

    def test_a_name_that_nobody_knows(self, tmp_path: Path):
        with pytest.raises(PlanError, match="knows no dataset named 'no_such_one', nor is it in"):
            from_tfds("no_such_one", split="train", data_dir=tmp_path)

    @pytest.mark.parametrize("split", ["validation", "train[", None, ["train"]])
    def test_a_split_that_there_is_not(self, prepared: Prepared, split: Any):
        with pytest.raises(
            PlanError, match=r"digits/1.0.0 has 'test', 'train'|has 'train', 'test'"
        ):
            from_tfds(prepared("Digits"), split=split)

    def test_a_format_that_is_not_read(self, prepared: Prepared, tmp_path: Path):
        folder = tmp_path / "other"
        shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
        info = folder / "dataset_info.json"
        info.write_text(info.read_text().replace('"tfrecord"', '"riegeli"'))

        with pytest.raises(PlanError, match=r"format 'riegeli'.*Prepare it anew"):
            from_tfds(tfds.builder_from_directory(folder), split="train")

    def test_a_dataset_of_tensorflow(self, prepared: Prepared):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = prepared("Digits", "tfrecord").as_dataset(split="train")

        with pytest.raises(PlanTypeError, match="pass the builder that made it"):
            from_tfds(given, split="train")

    def test_a_data_source_of_tfds(self, prepared: Prepared):
        with pytest.raises(PlanTypeError, match=r"taken as it is by `MapDataset.source`"):
            from_tfds(prepared("Digits").as_data_source("train"), split="train")

    def test_anything_else(self):
        with pytest.raises(PlanTypeError, match=r"got int. Use `tfds.builder"):
            from_tfds(3, split="train")

    def test_a_folder_for_a_builder(self, prepared: Prepared, tmp_path: Path):
        with pytest.raises(PlanError, match=r"a builder has its own. Leave it out"):
            from_tfds(prepared("Digits"), split="train", data_dir=tmp_path)

    def test_a_missing_package(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)

        with pytest.raises(MissingExtraError, match=r"pip install gristmill\[tfds\]"):
            from_tfds("mnist", split="train")

    def test_a_damaged_file_is_named_with_the_record(self, prepared: Prepared, tmp_path: Path):
        dataset = from_tfds(damaged(prepared, tmp_path, "Facts", "tfrecord"), split="train")

        with pytest.raises(
            CorruptFileError, match=r"facts-train.tfrecord-00000-of-00003.*record 4"
        ):
            list(dataset)
        check_same(records_of(prepared("Facts"), "train[:4]"), [dataset[i] for i in range(4)])

    def test_a_damaged_array_record_is_named_too(self, prepared: Prepared, tmp_path: Path):
        builder = damaged(prepared, tmp_path, "Digits", "array_record")

        with pytest.raises(
            CorruptFileError, match=r"digits-train.array_record-00000-of-00003.*record \d+\)"
        ):
            list(from_tfds(builder, split="train").batch(45))

    def test_a_record_that_tfds_cannot_decode_is_named(self, prepared: Prepared, tmp_path: Path):
        dataset = from_tfds(undecodable(tmp_path), split="train")

        assert int(source_of(dataset)[2]["number"]) == 2
        with pytest.raises(
            CorruptFileError,
            match=r"(?s)could not decode.*pictures-train.*00000-of-00001.*record 3",
        ):
            list(dataset)

    def test_files_with_other_records_than_were_counted(self, prepared: Prepared, tmp_path: Path):
        folder = tmp_path / "less"
        shutil.copytree(prepared("Digits", "tfrecord").data_path, folder)
        first, second, _ = sorted(folder.glob("digits-train.tfrecord-*-of-00003"))
        size = 16 + int.from_bytes(first.read_bytes()[:8], "little")
        second.write_bytes(second.read_bytes() + first.read_bytes()[:size])
        dataset = from_tfds(tfds.builder_from_directory(folder), split="train")

        with pytest.raises(CorruptFileError, match="hold 91 records, and TFDS counted 90"):
            dataset[0]


def undecodable(folder: Path) -> Any:
    """Give a builder whose record 3 holds something that is no picture."""

    class Broken(Pictures, skip_registration=True):
        name = "pictures"

        def record(self, number: int) -> dict[str, Any]:
            made = super().record(number)
            return {**made, "picture": b"no picture"} if number == 3 else made

    builder = Broken(data_dir=folder, file_format="array_record")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder.download_and_prepare()
    return builder


class TestDigitsInArrayRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Digits"), split="train[3:80]"))


class TestFactsInTFRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        dataset = from_tfds(prepared("Facts", "tfrecord"), split="train[3:80]", as_supervised=True)
        return source_of(dataset)


class TestPicturesOfSeveralShapes(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Pictures"), split="train"))


class TestRaggedRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Ragged"), split="train"))


class TestNoRecords(SourceSuite):
    @pytest.fixture
    def source(self, prepared: Prepared) -> Any:
        return source_of(from_tfds(prepared("Digits"), split="train[:0]"))
