"""Datasets of Hugging Face as sources: whole pipelines, workers, pictures, bad input."""

import io
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image as Pictures

from gristmill import (
    Batch,
    DataLoader,
    IndexSampler,
    MapDataset,
    MultiprocessingOptions,
    ReadOptions,
    ShardOptions,
)
from gristmill.errors import BatchError, PlanError, PlanTypeError, SourceError
from gristmill.testing import SourceSuite
from tests.adapters.hf_samples import datasets, make, ours

from datasets import (  # isort: skip
    Array2D,
    Dataset,
    DatasetDict,
    Features,
    Image,
    List,
    Value,
    concatenate_datasets,
    load_from_disk,
)

COUNT = 40


def rows(count: int = COUNT, first: int = 0) -> Dataset:
    """Give rows of every way that we read: numbers, lists, arrays, texts."""
    numbers = range(first, first + count)
    features = Features(
        {
            "id": Value("int32"),
            "x": List(Value("float32"), length=2),
            "pixels": Array2D((2, 3), "uint8"),
            "text": Value("string"),
        }
    )
    columns = {
        "id": list(numbers),
        "x": [[number / 2, 1.0] for number in numbers],
        "pixels": [np.full((2, 3), number, np.uint8).tolist() for number in numbers],
        "text": [f"row {number}" for number in numbers],
    }
    return Dataset.from_dict(columns, features=features)


def on_disk(dataset: Any, folder: Path, **options: Any) -> Any:
    dataset.save_to_disk(str(folder), **options)
    return load_from_disk(str(folder))


def ragged() -> Dataset:
    return Dataset.from_dict({"x": [[1, 2], [3], [], [4, 5, 6]] * 5, "y": list(range(20))})


def nested() -> Dataset:
    return Dataset.from_dict({"s": [{"a": number, "b": [str(number)]} for number in range(12)]})


def png(shade: int, *, mode: str = "RGB", orientation: int | None = None) -> bytes:
    picture = Pictures.new(mode, (3, 2), shade if mode == "L" else (shade, 1, 2))
    file, exif = io.BytesIO(), Pictures.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    picture.save(file, "PNG", exif=exif)
    return file.getvalue()


def pictures(count: int = 6, **options: Any) -> Dataset:
    stored = [{"bytes": png(number), "path": None} for number in range(count)]
    features = Features({"image": Image(**options), "label": Value("int64")})
    return Dataset.from_dict({"image": stored, "label": list(range(count))}, features=features)


MAKERS: dict[str, Any] = {
    "memory": lambda folder: rows(),
    "shuffled": lambda folder: rows().shuffle(seed=1),
    "files": lambda folder: on_disk(rows(), folder, num_shards=3),
    "shuffled files": lambda folder: on_disk(rows(), folder, num_shards=3).shuffle(seed=1),
    "part of files": lambda folder: on_disk(rows(), folder, num_shards=3).select(range(5, 30)),
    "other columns of files": lambda folder: (
        on_disk(rows(), folder).remove_columns("x").rename_column("text", "words")
    ),
    "both": lambda folder: concatenate_datasets([on_disk(rows(), folder), rows(3, 100)]),
    "beside": lambda folder: on_disk(rows(), folder, num_shards=2).add_column(
        "more", [[number] for number in range(COUNT)]
    ),
    "flat files": lambda folder: on_disk(nested(), folder).flatten(),
    "numpy": lambda folder: on_disk(rows(), folder, num_shards=2).with_format("numpy"),
    "nulls in numpy": lambda folder: Dataset.from_dict({"x": [1, None, 3]}).with_format("numpy"),
    "numbers": lambda folder: rows().select_columns(["id", "pixels"]),
    "numbers in files": lambda folder: on_disk(
        rows().select_columns(["id", "pixels"]), folder, num_shards=4
    ),
    "nulls": lambda folder: Dataset.from_dict({"x": [1, None, 3], "y": [[1], None, [None]]}),
    "ragged": lambda folder: ragged(),
    "nested": lambda folder: nested(),
    "nested in numpy": lambda folder: nested().with_format("numpy"),
    "pictures": lambda folder: pictures(),
    "stored pictures": lambda folder: pictures(decode=False),
    "no rows": lambda folder: rows().select([]),
    "no columns": lambda folder: Dataset.from_dict({}),
    "transform": lambda folder: rows().with_transform(twice),
}


def twice(batch: Any) -> Any:
    return {"twice": [2 * number for number in batch["id"]], "text": batch["text"]}


KEPT = ["shuffled files", "both", "numbers", "flat files", "nulls in numpy", "ragged", "pictures"]
KEPT += ["no rows", "transform"]


class TestDatasetSource(SourceSuite):
    @pytest.fixture(params=KEPT)
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        return source_of(MAKERS[request.param](tmp_path))


def source_of(dataset: Any) -> Any:
    return ours(dataset).node.source


def batches(dataset: Any, **options: Any) -> list[Any]:
    source = source_of(dataset)
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), shuffle=True, seed=3, num_epochs=1),
        operations=[Batch(7)],
        **options,
    )
    return [{name: array.tolist() for name, array in batch.items()} for batch in loader]


@pytest.mark.parametrize("name", ["shuffled files", "numpy", "pictures"])
def test_the_stream_is_the_same_inline_in_threads_and_in_workers(name: str, tmp_path: Path):
    dataset = MAKERS[name](tmp_path)
    inline = batches(dataset, read_options=ReadOptions(num_threads=0))

    assert sum(len(next(iter(batch.values()))) for batch in inline) == len(dataset)
    assert batches(dataset, read_options=ReadOptions(num_threads=4)) == inline
    assert batches(dataset, worker_count=2) == inline


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_goes_on_where_it_was(num_workers: int, tmp_path: Path):
    dataset = on_disk(rows(), tmp_path, num_shards=3).shuffle(seed=1)
    ds = ours(dataset).shuffle(seed=2).batch(6)
    stream = ds.to_iter_dataset()
    if num_workers:
        stream = stream.mp_prefetch(MultiprocessingOptions(num_workers=num_workers))
    wanted = [batch["id"].tolist() for batch in stream]
    before = iter(stream)
    head = [next(before)["id"].tolist() for _ in range(3)]
    after = iter(ds.to_iter_dataset())
    after.set_state(before.get_state())

    assert head + [batch["id"].tolist() for batch in after] == wanted


def test_numbers_and_texts_come_as_columns_and_one_batch_is_one_gather(tmp_path: Path):
    source = source_of(on_disk(rows(), tmp_path, num_shards=3).shuffle(seed=0))

    assert source.is_columnar
    assert not isinstance(source.read_columns(np.array([30, 2, 17])), list)


def test_lists_of_one_length_are_columns_where_a_block_has_no_other():
    source = source_of(ragged())

    assert not isinstance(source.read_columns(np.array([0, 4, 8])), list)
    assert source.read_columns(np.array([0, 4, 8])).gather()["x"].tolist() == [[1, 2]] * 3
    assert isinstance(source.read_columns(np.array([0, 1])), list)


WORKER = """
import pickle, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        source = pickle.load(file)
    print([row["id"].item() for row in source.__getitems__(range(len(source)))])
print([name for name in ("datasets", "pandas", "torch") if name in sys.modules])
"""


def test_a_worker_needs_no_datasets_for_what_we_read(tmp_path: Path):
    names = ["memory", "shuffled", "files", "shuffled files", "part of files", "both", "beside"]
    names += ["other columns of files", "numpy", "numbers in files"]
    told: list[str] = []
    for name in names:
        dataset = MAKERS[name](tmp_path / name)
        (tmp_path / f"{name}.pickle").write_bytes(cloudpickle.dumps(source_of(dataset)))
        told.append(f"{dataset.with_format(None)['id'][:]}\n")

    done = subprocess.run(
        [sys.executable, "-c", WORKER, *(str(tmp_path / f"{name}.pickle") for name in names)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("".join([*told, "[]\n"]), "")


def test_files_are_not_copied_into_a_pickle(tmp_path: Path):
    large = Dataset.from_dict({"x": np.zeros((1000, 100))})
    dataset = on_disk(large, tmp_path / "data").shuffle(seed=0)
    shuffled_in_memory = on_disk(large, tmp_path / "more").select(list(range(999, -1, -1)))

    assert len(pickle.dumps(source_of(dataset))) < 5_000
    assert len(pickle.dumps(source_of(shuffled_in_memory))) < 20_000  # the order of the rows


def test_of_a_table_in_memory_only_the_rows_that_are_read_are_pickled():
    dataset = Dataset.from_dict({"x": np.zeros((1000, 100))}).select(range(10))
    buffers: list[Any] = []

    data = pickle.dumps(source_of(dataset), protocol=5, buffer_callback=buffers.append)

    assert len(data) + sum(buffer.raw().nbytes for buffer in buffers) < 20_000


def test_a_table_in_memory_goes_out_of_band():
    dataset = Dataset.from_dict({"x": np.zeros((1000, 100))})
    buffers: list[Any] = []

    assert len(pickle.dumps(source_of(dataset), 5, buffer_callback=buffers.append)) < 5_000


@pytest.mark.parametrize("kind", [None, "numpy"])
@pytest.mark.parametrize("orientation", [None, 1, 6])
@pytest.mark.parametrize("mode", [None, "L"])
def test_a_picture_is_the_array_that_hf_decodes(
    kind: str | None, orientation: int | None, mode: str | None
):
    stored = [{"bytes": png(9, orientation=orientation), "path": None}, None]
    features = Features({"image": Image(mode=mode)})
    dataset = Dataset.from_dict({"image": stored}, features=features).with_format(kind)

    given = ours(dataset)[0]["image"]

    wanted = np.asarray(dataset[0]["image"])
    assert given.dtype == wanted.dtype == np.uint8
    assert given.tolist() == wanted.tolist()
    assert ours(dataset)[1]["image"] is None


def test_a_picture_may_be_in_a_file(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(png(7, mode="L"))
    paths = [str(tmp_path / "a.png")]
    dataset = Dataset.from_dict({"image": paths}, features=Features({"image": Image()}))

    assert ours(dataset)[0]["image"].tolist() == [[7] * 3] * 2


def test_pictures_that_are_not_decoded_stay_as_they_are_stored():
    assert ours(pictures(decode=False))[2]["image"] == {"bytes": png(2), "path": None}


def test_pictures_in_a_list_are_decoded_by_hf():
    stored = [[{"bytes": png(1), "path": None}] * 2]
    dataset = Dataset.from_dict({"images": stored}, features=Features({"images": List(Image())}))

    assert [one.shape for one in ours(dataset)[0]["images"]] == [(2, 3, 3)] * 2


def test_torch_puts_the_channels_of_a_picture_first():
    dataset = pictures().with_format("torch")

    given = ours(dataset)[3]["image"]

    assert given.tolist() == dataset[3]["image"].tolist()


def test_a_transform_gets_blocks_of_rows():
    ds = ours(rows().with_transform(twice))

    assert [row["twice"] for row in ds] == [2 * number for number in range(COUNT)]


def test_tensors_that_a_transform_gives_become_arrays():
    dataset = rows().with_transform(lambda batch: {"x": torch.tensor(batch["x"])})

    assert [type(row["x"]) for row in ours(dataset)][:1] == [np.ndarray]


def test_a_transform_that_makes_fewer_rows_is_an_error():
    dataset = rows().with_transform(lambda batch: {"id": batch["id"][:1]})

    with pytest.raises(SourceError, match=re.escape("made 1 rows of 3. It must make one of each")):
        ours(dataset).node.source.__getitems__([0, 1, 2])


def test_a_split_of_a_dict_of_datasets():
    both = DatasetDict({"train": rows(5), "test": rows(3)})

    assert len(ours(both, split="test")) == 3


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (None, "`split` is not given, and the splits of `dataset` are 'train', 'test'. Name one."),
        ("dev", "`split` is 'dev', and the splits of `dataset` are 'train', 'test'. Name one."),
    ],
)
def test_a_split_must_be_one_of_those_there_are(split: str | None, message: str):
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        ours(DatasetDict({"train": rows(5), "test": rows(3)}), split=split)


def test_a_single_dataset_has_no_splits():
    with pytest.raises(PlanError, match=r"`dataset` is a single dataset\. Leave `split` out\.$"):
        ours(rows(), split="train")


def test_what_is_not_a_dataset_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    builder = datasets.load_dataset_builder(
        "csv", data_files=str(tmp_path / "a.csv"), cache_dir=str(tmp_path / "cache")
    )
    with pytest.raises(PlanTypeError, match=r"text 'mnist'.*datasets.load_dataset\('mnist', split"):
        ours("mnist")
    with pytest.raises(PlanTypeError, match=r"is a builder\..*`builder.as_dataset\(split='train'"):
        ours(builder)
    with pytest.raises(PlanTypeError, match=r"must be a dataset of Hugging Face .*, got list\.$"):
        ours([1, 2])


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_formats_of_tables_are_refused(kind: str):
    message = f"`dataset` has the format '{kind}', in which a row is a table. Pass `dataset.with"
    with pytest.raises(PlanError, match=re.escape(message)):
        ours(rows().with_format(kind))


MISSING = """
import sys
sys.modules[{name!r}] = None
import gristmill
{before}
try:
    gristmill.from_huggingface({given})
except gristmill.errors.MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "before", "given", "message"),
    [
        (
            "datasets",
            "",
            "[1, 2]",
            "`from_huggingface` needs the package 'datasets'. Install it with "
            "`pip install gristmill[huggingface]`.\n",
        ),
        (
            "PIL.Image",
            "import datasets as d; f = d.Features({'i': d.Image()})",
            "d.Dataset.from_dict({'i': []}, features=f)",
            "`from_huggingface`, for a column of pictures, needs the package 'PIL.Image'. Install "
            "it with `pip install gristmill[huggingface]`.\n",
        ),
    ],
)
def test_a_missing_package_is_named_with_the_remedy(
    name: str, before: str, given: str, message: str
):
    program = MISSING.format(name=name, before=before, given=given)

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == message, done.stderr


def test_a_batch_of_ragged_rows_names_the_column_the_record_and_the_remedy():
    message = 'batch["x"]: shapes (2,) and (1,). Crop, resize or pad to one shape before batching'
    with pytest.raises(BatchError, match=re.escape(message)) as caught:
        list(ours(ragged()).to_iter_dataset().batch(4))

    assert "element 1" in caught.value.__notes__[0]
    assert [row["x"].tolist() for row in ours(ragged())][:3] == [[1, 2], [3], []]


@pytest.mark.parametrize("odd", [[[1, 2, 3]], [[1, 2]], [[1, 2]] * 3], ids=["wide", "low", "high"])
def test_a_value_of_another_shape_is_an_error_in_numpy_and_a_list_without(odd: Any):
    kind = Features({"x": Array2D((2, 2), "int8")}).arrow_schema.field("x").type
    stored = pa.array([[[1, 2], [3, 4]], odd], kind.storage_type)
    dataset = Dataset(pa.table({"x": pa.ExtensionArray.from_storage(kind, stored)}))

    assert ours(dataset)[0]["x"].tolist() == [[1, 2], [3, 4]]
    assert [one.tolist() for one in ours(dataset)[1]["x"]] == odd
    with pytest.raises(SourceError, match=r"column 'x' does not have the shape \(2, 2\)"):
        ours(dataset.with_format("numpy"))[1]


def test_no_rows_and_no_columns():
    assert list(ours(rows().select([]))) == []
    assert list(ours(Dataset.from_dict({}))) == []
    assert list(ours(rows().select([])).batch(3)) == []


def test_writing_into_a_batch_changes_nothing():
    ds = ours(rows().select_columns(["id", "pixels"])).batch(8)
    ds[0]["id"][:] = 99

    assert ds[0]["id"].tolist() == list(range(8))


def test_a_dataset_of_a_row_each_is_dealt_to_shards():
    source = source_of(rows())
    parts = [
        [
            int(row["id"])
            for row in DataLoader(
                data_source=source,
                sampler=IndexSampler(COUNT, num_epochs=1, shard_options=ShardOptions(part, 2)),
            )
        ]
        for part in range(2)
    ]

    assert sorted(parts[0] + parts[1]) == list(range(COUNT))


def test_what_it_tells_is_in_a_state_and_says_what_the_data_are():
    many = make({"int8": [1, 2, 3]}).with_format("numpy").shuffle(seed=0)
    wide = Dataset.from_dict({f"a long name of a column {number}": [1] for number in range(50)})

    assert repr(source_of(rows())) == "HuggingFaceDataset(<40 rows>, columns=[id, x, pixels, text])"
    assert re.fullmatch(
        r"HuggingFaceDataset\(<3 rows>, columns=\[int8\], format='numpy', order=[0-9a-f]{8}\)",
        repr(source_of(many)),
    )
    assert "columns=[50 from 'a long name of a column 0' to" in repr(source_of(wide))
    assert isinstance(ours(wide), MapDataset)


def encoded(picture: Any, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


NOISE = np.random.default_rng(0).integers(0, 256, (9, 12, 11, 3), np.uint8)
GREY = [encoded(Pictures.fromarray(pixels[..., 0])) for pixels in NOISE]
COLOURED = [encoded(Pictures.fromarray(pixels)) for pixels in NOISE]
ODD = {
    "grey": GREY,
    "coloured": COLOURED,
    "grey, then coloured": [*GREY[:5], *COLOURED],
    "of several sizes": [*GREY, encoded(Pictures.fromarray(NOISE[0, :5, :, 0])), *GREY],
    "with a null": [GREY[0], None, *GREY],
    "a null first": [None, *GREY],
    "with a palette": [*COLOURED, encoded(Pictures.fromarray(NOISE[0]).convert("P"))],
    "with transparency": [encoded(Pictures.fromarray(NOISE[0]).convert("RGBA")), *COLOURED],
    "among JPEGs": [*GREY, encoded(Pictures.fromarray(NOISE[0]), "JPEG")],
    "of many pixels": [encoded(Pictures.fromarray(np.tile(NOISE[0], (40, 40, 1))))] * 2,
}


@pytest.mark.parametrize("mode", [None, "L", "RGB"])
@pytest.mark.parametrize("files", ODD.values(), ids=list(ODD))
def test_pictures_are_those_of_hugging_face_whatever_they_are_among(
    files: list[bytes | None], mode: str | None
):
    stored = [None if file is None else {"bytes": file, "path": None} for file in files]
    dataset = Dataset.from_dict({"image": stored}, features=Features({"image": Image(mode=mode)}))

    made = source_of(dataset).__getitems__(range(len(files)))

    for index, element in enumerate(made):
        expected = dataset[index]["image"]
        if expected is None:
            assert element["image"] is None
        else:
            assert np.array_equal(element["image"], np.asarray(expected))
            assert element["image"].dtype == np.asarray(expected).dtype
