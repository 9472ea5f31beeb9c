"""Streaming datasets of Hugging Face: their order, their states, their values."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gristmill import IterDataset
from gristmill.adapters import _iterable
from gristmill.errors import PlanError
from tests.adapters.hf_samples import KINDS, datasets, is_same, make, ours
from tests.adapters.test_huggingface import pictures

COUNT = 50


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for the state of a dataset every few rows, and not by the clock."""
    monkeypatch.setattr(_iterable, "_MOST", 4)
    monkeypatch.setattr(_iterable, "_SECONDS", 1e9)


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
    "part": lambda: stream().skip(3).take(30),
    "twice": lambda: stream().repeat(2),
    "numpy": lambda: stream().with_format("numpy"),
}


def numbers(rows: Any) -> list[int]:
    return [int(row["x"]) for row in rows]


@pytest.mark.parametrize("name", CASES)
def test_the_order_is_that_of_the_dataset(name: str):
    assert numbers(ours(CASES[name]())) == numbers(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_exactly_where_it_was(name: str):
    ds = ours(CASES[name]())
    assert isinstance(ds, IterDataset)
    wanted = numbers(ds)

    for cut in (0, 1, 6, 13, 21, len(wanted)):
        before = iter(ds)
        head = [int(next(before)["x"]) for _ in range(cut)]
        after = iter(ours(CASES[name]()))
        after.set_state(json.loads(json.dumps(before.get_state())))

        assert head + numbers(after) == wanted


@pytest.mark.parametrize("name", ["shards", "shuffled", "map"])
def test_iterators_of_one_dataset_do_not_disturb_each_other(name: str):
    dataset = CASES[name]()
    ds = ours(dataset)
    wanted = numbers(ds)
    one, theirs = iter(ds), iter(dataset)
    head = [next(one) for _ in range(9)]
    next(theirs)

    assert numbers(ds) == wanted
    assert numbers(head) + numbers(one) == wanted


@pytest.mark.parametrize("name", ["shards", "shuffled", "map", "mix"])
def test_iterators_of_one_dataset_have_each_a_state_of_its_own(name: str):
    ds = ours(CASES[name]())
    wanted = numbers(ds)
    one, other = iter(ds), iter(ds)
    head = [next(one) for _ in range(9)]
    next(other)
    head += [next(one) for _ in range(6)]
    after = iter(ds)
    after.set_state(one.get_state())

    assert numbers(head) + numbers(after) == wanted
    assert numbers(other) == wanted[1:]


def test_a_state_of_the_dataset_is_used_so_that_few_rows_are_read_again():
    read: list[int] = []

    def note(row: Any) -> Any:
        read.append(row["x"])
        return row

    ds = ours(stream(1).map(note))
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


def test_batches_and_the_steps_of_ours_follow():
    ds = ours(stream()).map(lambda row: row["x"]).batch(20)

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
    "text list": ["a", "b"],
    "fixed": [1, 2, 3],
    "grid": [[1, 2, 3], [4, 5, 6]],
    "open grid": [[1, 2]],
    "struct": {"p": 1, "q": "q"},
}


@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("text list", "struct")])
def test_a_value_is_that_of_the_dataset_with_all_its_rows(name: str):
    dataset = make({name: [VALUES[name], VALUES[name]]})

    (row, _) = ours(dataset.to_iterable_dataset())

    assert is_same(row, ours(dataset)[0])


def test_values_that_are_no_numbers_stay_what_they_are():
    dataset = make({name: [VALUES[name]] for name in ("text list", "struct")})

    assert list(ours(dataset.to_iterable_dataset())) == [
        {"text list": ["a", "b"], "struct": {"p": 1, "q": "q"}}
    ]


def test_nulls_are_none():
    dataset = make({name: [None] for name in KINDS if "grid" not in name and name != "cube"})

    (row,) = ours(dataset.to_iterable_dataset())

    assert set(row.values()) == {None}


def test_a_list_with_a_null_stays_a_list():
    (row,) = ours(make({"list": [[1, None]]}).to_iterable_dataset())

    assert row == {"list": [1, None]}


def test_pictures_are_arrays():
    rows = list(ours(pictures().to_iterable_dataset()))

    assert [row["image"][0, 0].tolist() for row in rows[:2]] == [[0, 1, 2], [1, 1, 2]]
    assert rows[0]["image"].dtype == np.uint8


def test_a_split_of_a_dict_of_streams():
    both = datasets.IterableDatasetDict({"train": stream(), "test": stream().take(3)})

    assert numbers(ours(both, split="test")) == [0, 1, 2]
    with pytest.raises(PlanError, match="the splits of `dataset` are 'train', 'test'"):
        ours(both)


def test_formats_of_tables_are_refused():
    with pytest.raises(PlanError, match="has the format 'arrow', in which a row is a table"):
        ours(stream().with_format("arrow"))


def test_what_it_tells_is_the_same_each_time():
    told = [repr(ours(stream()).node.stream) for _ in range(2)]

    assert told == ["HuggingFaceStream(columns=[x, text])"] * 2
