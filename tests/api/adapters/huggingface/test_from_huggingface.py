"""`from_huggingface` accepts datasets and splits, and its datasets work in whole pipelines."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gristmill import (
    Batch,
    DataLoader,
    IndexSampler,
    MultiprocessingOptions,
    ReadOptions,
    ShardOptions,
)
from gristmill.errors import BatchError, PlanError, PlanTypeError
from tests.api.adapters.huggingface.hf_samples import (
    COUNT,
    MAKERS,
    convert,
    datasets,
    on_disk,
    ragged,
    rows,
    source_of,
)

from datasets import Dataset, DatasetDict  # isort: skip


def batches(dataset: Any, **options: Any) -> list[Any]:
    source = source_of(dataset)
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), shuffle=True, seed=3, num_epochs=1),
        operations=[Batch(7)],
        **options,
    )
    return [{name: array.tolist() for name, array in batch.items()} for batch in loader]


@pytest.mark.parametrize("name", ["shuffled files", "numpy", "images"])
def test_the_stream_is_the_same_inline_in_threads_and_in_workers(name: str, tmp_path: Path):
    dataset = MAKERS[name](tmp_path)
    inline = batches(dataset, read_options=ReadOptions(num_threads=0))

    assert sum(len(next(iter(batch.values()))) for batch in inline) == len(dataset)
    assert batches(dataset, read_options=ReadOptions(num_threads=4)) == inline
    assert batches(dataset, worker_count=2) == inline


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_run_resumes_from_its_state(num_workers: int, tmp_path: Path):
    dataset = on_disk(rows(), tmp_path, num_shards=3).shuffle(seed=1)
    ds = convert(dataset).shuffle(seed=2).batch(6)
    stream = ds.to_iter_dataset()
    if num_workers:
        stream = stream.mp_prefetch(MultiprocessingOptions(num_workers=num_workers))
    expected = [batch["id"].tolist() for batch in stream]
    before = iter(stream)
    head = [next(before)["id"].tolist() for _ in range(3)]
    after = iter(ds.to_iter_dataset())
    after.set_state(before.get_state())

    assert head + [batch["id"].tolist() for batch in after] == expected


def test_the_rows_are_distributed_to_shards():
    source = source_of(rows())
    shards = [
        [
            int(row["id"])
            for row in DataLoader(
                data_source=source,
                sampler=IndexSampler(COUNT, num_epochs=1, shard_options=ShardOptions(shard, 2)),
            )
        ]
        for shard in range(2)
    ]

    assert sorted(shards[0] + shards[1]) == list(range(COUNT))


def test_datasets_without_rows_or_columns_are_empty():
    assert list(convert(rows().select([]))) == []
    assert list(convert(Dataset.from_dict({}))) == []
    assert list(convert(rows().select([])).batch(3)) == []


def test_writing_into_a_batch_does_not_change_the_dataset():
    ds = convert(rows().select_columns(["id", "pixels"])).batch(8)
    ds[0]["id"][:] = 99

    assert ds[0]["id"].tolist() == list(range(8))


def test_a_batch_of_ragged_rows_names_the_column_the_record_and_the_remedy():
    message = 'batch["x"]: shapes (2,) and (1,). Crop, resize or pad to one shape before batching'
    with pytest.raises(BatchError, match=re.escape(message)) as caught:
        list(convert(ragged()).to_iter_dataset().batch(4))

    assert "element 1" in caught.value.__notes__[0]
    assert [row["x"].tolist() for row in convert(ragged())][:3] == [[1, 2], [3], []]


def test_a_split_of_a_dict_of_datasets_can_be_selected():
    both = DatasetDict({"train": rows(5), "test": rows(3)})

    assert len(convert(both, split="test")) == 3


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (None, "`split` is missing, but the splits of `dataset` are 'train', 'test'. Pass one."),
        ("dev", "`split` is 'dev', but the splits of `dataset` are 'train', 'test'. Pass one."),
    ],
)
def test_a_missing_or_unknown_split_is_an_error(split: str | None, message: str):
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        convert(DatasetDict({"train": rows(5), "test": rows(3)}), split=split)


def test_a_split_of_a_single_dataset_is_an_error():
    with pytest.raises(PlanError, match=r"`dataset` is a single dataset\. Leave `split` out\.$"):
        convert(rows(), split="train")


def test_an_object_that_is_not_a_dataset_is_an_error(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    builder = datasets.load_dataset_builder(
        "csv", data_files=str(tmp_path / "a.csv"), cache_dir=str(tmp_path / "cache")
    )
    message = r"string 'mnist'.*datasets.load_dataset\('mnist', split"
    with pytest.raises(PlanTypeError, match=message):
        convert("mnist")
    with pytest.raises(PlanTypeError, match=r"is a builder\..*`builder.as_dataset\(split='train'"):
        convert(builder)
    with pytest.raises(PlanTypeError, match=r"must be a Hugging Face dataset .*, got list\.$"):
        convert([1, 2])


MISSING = """
import sys
sys.modules[{name!r}] = None
import gristmill
{before}
try:
    gristmill.from_huggingface({argument})
except gristmill.errors.MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "before", "argument", "message"),
    [
        (
            "datasets",
            "",
            "[1, 2]",
            "`from_huggingface` needs the package 'datasets'. Install it with "
            '`pip install "gristmill[huggingface]"`.\n',
        ),
        (
            "PIL.Image",
            "import datasets as d; f = d.Features({'i': d.Image()})",
            "d.Dataset.from_dict({'i': []}, features=f)",
            "`from_huggingface`, for a column of images, needs the package 'PIL.Image'. Install "
            'it with `pip install "gristmill[huggingface]"`.\n',
        ),
    ],
)
def test_a_missing_package_is_named_with_the_remedy(
    name: str, before: str, argument: str, message: str
):
    program = MISSING.format(name=name, before=before, argument=argument)

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == message, done.stderr
