"""Streaming Hugging Face datasets keep their order, resume from states, and have NumPy values."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gristmill import IterDataset
from gristmill._api.adapters import iterable as _iterable
from gristmill.errors import PlanError
from tests.api.adapters.huggingface.hf_samples import (
    KINDS,
    convert,
    datasets,
    images,
    is_same,
    make,
)

COUNT = 50


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the state of a dataset every few rows, independent of the clock."""
    monkeypatch.setattr(_iterable, "_MAX_CHUNK_ITEMS", 4)
    monkeypatch.setattr(_iterable, "_MAX_CHUNK_SECONDS", 1e9)


def stream(num_shards: int = 3) -> Any:
    columns = {"x": list(range(COUNT)), "text": [f"row {number}" for number in range(COUNT)]}
    return datasets.Dataset.from_dict(columns).to_iterable_dataset(num_shards=num_shards)


def generated() -> Any:
    return datasets.IterableDataset.from_generator(
        lambda names: ({"x": 10 * name + number} for name in names for number in range(10)),
        gen_kwargs={"names": [0, 1, 2]},
    )


CASES: dict[str, Callable[[], Any]] = {
    "shards": stream,
    "one shard": lambda: stream(1),
    "generator": generated,
    "map": lambda: stream().map(lambda row: {"x": row["x"] + 1}),
    "batched map": lambda: stream().map(
        lambda batch: {"x": batch["x"] * 2}, batched=True, batch_size=7, remove_columns=["text"]
    ),
    "filter": lambda: stream().filter(lambda row: row["x"] % 3 > 0),
    "shuffled": lambda: stream().shuffle(seed=1, buffer_size=9),
    "shuffled and mapped": lambda: (
        stream().shuffle(seed=1, buffer_size=9).map(lambda row: {"x": row["x"] + 1})
    ),
    "shuffled sources in a mix": lambda: datasets.interleave_datasets(
        [stream().shuffle(seed=1, buffer_size=9), stream()]
    ),
    "mix": lambda: datasets.interleave_datasets([stream(), stream(1)], [0.3, 0.7], seed=0),
    "batches as tables": lambda: (
        stream()
        .with_format("arrow")
        .map(lambda table: table, batched=True, batch_size=7)
        .with_format(None)
    ),
    "slice": lambda: stream().skip(3).take(30),
    "twice": lambda: stream().repeat(2),
    "numpy": lambda: stream().with_format("numpy"),
}


def numbers(rows: Any) -> list[int]:
    return [int(row["x"]) for row in rows]


@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_order_of_the_dataset(name: str):
    assert numbers(convert(CASES[name]())) == numbers(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_a_run_resumes_exactly_from_its_state(name: str):
    ds = convert(CASES[name]())
    assert isinstance(ds, IterDataset)
    expected = numbers(ds)

    for cut in (0, 1, 6, 13, 21, len(expected)):
        before = iter(ds)
        head = [int(next(before)["x"]) for _ in range(cut)]
        after = iter(convert(CASES[name]()))
        after.set_state(json.loads(json.dumps(before.get_state())))

        assert head + numbers(after) == expected


@pytest.mark.parametrize("name", ["shards", "shuffled", "map"])
def test_iterators_of_one_dataset_do_not_disturb_each_other(name: str):
    dataset = CASES[name]()
    ds = convert(dataset)
    expected = numbers(ds)
    one, theirs = iter(ds), iter(dataset)
    head = [next(one) for _ in range(9)]
    next(theirs)

    assert numbers(ds) == expected
    assert numbers(head) + numbers(one) == expected


@pytest.mark.parametrize("name", ["shards", "shuffled", "map", "mix"])
def test_each_iterator_of_a_dataset_has_its_own_state(name: str):
    ds = convert(CASES[name]())
    expected = numbers(ds)
    one, other = iter(ds), iter(ds)
    head = [next(one) for _ in range(9)]
    next(other)
    head += [next(one) for _ in range(6)]
    after = iter(ds)
    after.set_state(one.get_state())

    assert numbers(head) + numbers(after) == expected
    assert numbers(other) == expected[1:]


def test_resuming_from_the_state_of_the_dataset_reads_few_rows_again():
    read: list[int] = []

    def record(row: Any) -> Any:
        read.append(row["x"])
        return row

    ds = convert(stream(1).map(record))
    before = iter(ds)
    for _ in range(40):
        next(before)
    state = before.get_state()
    before.close()
    read.clear()

    after = iter(ds)
    after.set_state(state)
    assert next(after)["x"] == 40
    assert min(read) > 30


def test_a_stream_can_be_mapped_and_batched():
    ds = convert(stream()).map(lambda row: row["x"]).batch(20)

    assert [batch.tolist() for batch in ds] == [
        list(range(20)),
        list(range(20, 40)),
        list(range(40, 50)),
    ]


VALUES = {
    "int8": 1,
    "float32": 0.5,
    "bool": True,
    "string": "a",
    "decimal": None,
    "class": 1,
    "list": [1, 2],
    "string list": ["a", "b"],
    "fixed": [1, 2, 3],
    "grid": [[1, 2, 3], [4, 5, 6]],
    "open grid": [[1, 2]],
    "struct": {"p": 1, "q": "q"},
}


@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("string list", "struct")])
def test_values_are_those_of_the_dataset_with_random_access(name: str):
    dataset = make({name: [VALUES[name], VALUES[name]]})

    (row, _) = convert(dataset.to_iterable_dataset())

    assert is_same(row, convert(dataset)[0])


def test_values_other_than_numbers_are_kept():
    dataset = make({name: [VALUES[name]] for name in ("string list", "struct")})

    assert list(convert(dataset.to_iterable_dataset())) == [
        {"string list": ["a", "b"], "struct": {"p": 1, "q": "q"}}
    ]


def test_nulls_are_none():
    dataset = make({name: [None] for name in KINDS if "grid" not in name and name != "cube"})

    (row,) = convert(dataset.to_iterable_dataset())

    assert set(row.values()) == {None}


def test_a_list_with_a_null_remains_a_list():
    (row,) = convert(make({"list": [[1, None]]}).to_iterable_dataset())

    assert row == {"list": [1, None]}


def test_images_are_arrays():
    rows = list(convert(images().to_iterable_dataset()))

    assert [row["image"][0, 0].tolist() for row in rows[:2]] == [[0, 1, 2], [1, 1, 2]]
    assert rows[0]["image"].dtype == np.uint8


def test_a_split_of_a_dict_of_streams_can_be_selected():
    both = datasets.IterableDatasetDict({"train": stream(), "test": stream().take(3)})

    assert numbers(convert(both, split="test")) == [0, 1, 2]
    with pytest.raises(PlanError, match="the splits of `dataset` are 'train', 'test'"):
        convert(both)


def test_formats_whose_rows_are_tables_are_an_error():
    with pytest.raises(PlanError, match="has the format 'arrow', in which a row is a table"):
        convert(stream().with_format("arrow"))


def test_the_repr_is_the_same_each_time():
    shown = [repr(convert(stream())._plan_node.stream) for _ in range(2)]

    assert shown == ["HuggingFaceStream(columns=[x, text])"] * 2
