"""An iterable of another library becomes a stream that resumes from any position."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import IterDataset
from gristmill._api.adapters.iterable import IterableStream
from gristmill._api.dataset.iter_dataset import PlannedIterDataset
from gristmill._base.call_site import call_site
from gristmill._plan.nodes.stream import RecordStreamNode
from gristmill.errors import StateError


class Plain:
    """Yields numbers, and counts how many it has yielded in all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.num_yielded = 0

    def __iter__(self) -> Iterator[int]:
        for item in range(self.count):
            self.num_yielded += 1
            yield item


YIELDED: list[int] = []
"""The items that any `Stateful` yielded, as it is copied for each iterator."""


class Stateful:
    """Yields numbers, and can save and restore its position."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        while self.position < self.count:
            item, self.position = self.position, self.position + 1
            YIELDED.append(item)
            yield item

    def state_dict(self) -> dict[Any, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.position = state["position"]


def make_dataset(iterable: Any, **kwargs: Any) -> IterDataset[Any]:
    stream = IterableStream(
        iterable, **{"convert": lambda item: item * 10, "description": "Numbers", **kwargs}
    )
    return PlannedIterDataset(RecordStreamNode(site=call_site(), stream=stream), ())


@pytest.mark.parametrize("kind", [Plain, Stateful])
def test_items_are_converted_and_in_order_each_time(kind: Any):
    dataset = make_dataset(kind(1_000))

    for _ in range(2):
        assert list(dataset) == list(range(0, 10_000, 10))


def test_iterators_do_not_disturb_each_other():
    dataset = make_dataset(Stateful(600))
    one, other = iter(dataset), iter(dataset)
    pairs = list(zip(one, other, strict=True))

    assert pairs == [(item, item) for item in range(0, 6_000, 10)]


@given(
    count=st.integers(0, 700),
    cut=st.integers(0, 700),
    size=st.integers(1, 5),
    is_stateful=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_resuming_at_any_position_yields_the_remaining_batches(
    count: int, cut: int, size: int, is_stateful: bool
):
    kind = Stateful if is_stateful else Plain
    whole = [batch.tolist() for batch in make_dataset(kind(count)).batch(size)]
    iterator = iter(make_dataset(kind(count)).batch(size))
    taken = [next(iterator) for _ in range(min(cut, len(whole)))]

    other = iter(make_dataset(kind(count)).batch(size))
    other.set_state(json.loads(json.dumps(iterator.get_state())))

    assert [batch.tolist() for batch in other] == whole[len(taken) :]


def test_resuming_from_a_state_reads_few_items_again():
    iterator = iter(make_dataset(Stateful(5_000)))
    for _ in range(4_000):
        next(iterator)
    other = iter(make_dataset(Stateful(5_000)))
    other.set_state(iterator.get_state())
    YIELDED.clear()

    assert next(other) == 40_000
    assert YIELDED[0] >= 4_000 - 256


def test_resuming_without_a_state_reads_all_items_again():
    iterator = iter(make_dataset(Plain(50)))
    for _ in range(40):
        next(iterator)
    plain = Plain(50)
    other = iter(make_dataset(plain))
    other.set_state(iterator.get_state())

    assert list(other) == list(range(400, 500, 10))
    assert plain.num_yielded == 50


def test_a_state_after_the_end_is_an_error():
    iterator = iter(make_dataset(Plain(50)))
    for _ in range(40):
        next(iterator)
    other = iter(make_dataset(Plain(30)))
    other.set_state(iterator.get_state())

    with pytest.raises(StateError, match=r"after item 40 of Numbers, which has fewer items\."):
        next(other)


def test_a_state_of_a_stateful_iterable_is_an_error_for_a_stateless_one():
    iterator = iter(make_dataset(Stateful(1_000)))
    for _ in range(900):
        next(iterator)
    other = iter(make_dataset(Plain(1_000)))
    other.set_state(iterator.get_state())

    with pytest.raises(StateError, match="Numbers had a `state_dict`, and it has none now"):
        next(other)


def test_a_state_that_is_not_json_is_an_error_with_the_remedy():
    class Odd(Stateful):
        def state_dict(self) -> dict[Any, Any]:
            return {"position": {1, 2}}

    with pytest.raises(StateError, match=r"`state_dict` of Numbers cannot be serialized as JSON"):
        list(make_dataset(Odd(1_000)))


def test_an_error_is_raised_after_the_items_before_it():
    def convert(item: int) -> int:
        return 1 // (item - 5)

    iterator = iter(make_dataset(Plain(10), convert=convert))

    assert [next(iterator) for _ in range(5)] == [-1, -1, -1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(iterator)


def test_batches_are_made_by_its_collate_function():
    dataset = make_dataset(Plain(5), collate=sum)

    assert list(dataset.batch(2)) == [10, 50, 40]
    assert list(dataset.batch(2, batch_fn=len)) == [2, 2, 1]


def test_the_repr_is_the_description():
    assert repr(IterableStream([], convert=str, description="Numbers")) == "Numbers"
