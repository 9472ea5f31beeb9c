"""Another library's iterable is a stream that goes on from any place."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import IterDataset
from gristmill._site import call_site
from gristmill.adapters._iterable import IterableStream
from gristmill.dataset import PlannedIterDataset
from gristmill.errors import StateError
from gristmill.plan import RecordStreamNode


class Plain:
    """Counts, and how many items it has made in all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.made = 0

    def __iter__(self) -> Iterator[int]:
        for item in range(self.count):
            self.made += 1
            yield item


MADE: list[int] = []
"""The items that any `Stateful` made: it is copied for each iterator."""


class Stateful:
    """Tells where it stands, and goes on from there."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.place = 0

    def __iter__(self) -> Iterator[int]:
        while self.place < self.count:
            item, self.place = self.place, self.place + 1
            MADE.append(item)
            yield item

    def state_dict(self) -> dict[Any, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.place = state["place"]


def stream_of(iterable: Any, **kwargs: Any) -> IterDataset[Any]:
    stream = IterableStream(
        iterable, **{"convert": lambda item: item * 10, "told": "Numbers", **kwargs}
    )
    return PlannedIterDataset(RecordStreamNode(site=call_site(), parents=(), stream=stream), ())


@pytest.mark.parametrize("kind", [Plain, Stateful])
def test_items_are_converted_and_come_in_order_each_time(kind: Any):
    dataset = stream_of(kind(1_000))

    for _ in range(2):
        assert list(dataset) == list(range(0, 10_000, 10))


def test_iterators_do_not_disturb_each_other():
    dataset = stream_of(Stateful(600))
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
def test_resuming_at_any_place_gives_the_rest(count: int, cut: int, size: int, is_stateful: bool):
    kind = Stateful if is_stateful else Plain
    whole = [batch.tolist() for batch in stream_of(kind(count)).batch(size)]
    iterator = iter(stream_of(kind(count)).batch(size))
    taken = [next(iterator) for _ in range(min(cut, len(whole)))]

    other = iter(stream_of(kind(count)).batch(size))
    other.set_state(json.loads(json.dumps(iterator.get_state())))

    assert [batch.tolist() for batch in other] == whole[len(taken) :]


def test_with_a_state_few_items_are_made_again():
    iterator = iter(stream_of(Stateful(5_000)))
    for _ in range(4_000):
        next(iterator)
    other = iter(stream_of(Stateful(5_000)))
    other.set_state(iterator.get_state())
    MADE.clear()

    assert next(other) == 40_000
    assert MADE[0] >= 4_000 - 256


def test_without_a_state_all_are_made_again():
    iterator = iter(stream_of(Plain(50)))
    for _ in range(40):
        next(iterator)
    plain = Plain(50)
    other = iter(stream_of(plain))
    other.set_state(iterator.get_state())

    assert list(other) == list(range(400, 500, 10))
    assert plain.made == 50


def test_a_state_past_the_end_is_refused():
    iterator = iter(stream_of(Plain(50)))
    for _ in range(40):
        next(iterator)
    other = iter(stream_of(Plain(30)))
    other.set_state(iterator.get_state())

    with pytest.raises(StateError, match=r"after item 40 of Numbers, which has ended before\."):
        next(other)


def test_a_state_of_one_that_kept_a_state_is_refused_by_one_that_does_not():
    iterator = iter(stream_of(Stateful(1_000)))
    for _ in range(900):
        next(iterator)
    other = iter(stream_of(Plain(1_000)))
    other.set_state(iterator.get_state())

    with pytest.raises(StateError, match="with a `state_dict`, which it has no more"):
        next(other)


def test_a_state_that_is_no_json_is_an_error_with_the_remedy():
    class Odd(Stateful):
        def state_dict(self) -> dict[Any, Any]:
            return {"place": {1, 2}}

    with pytest.raises(StateError, match=r"`state_dict` of Numbers cannot be written as JSON"):
        list(stream_of(Odd(1_000)))


def test_an_error_comes_after_the_items_before_it():
    def convert(item: int) -> int:
        return 1 // (item - 5)

    iterator = iter(stream_of(Plain(10), convert=convert))

    assert [next(iterator) for _ in range(5)] == [-1, -1, -1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(iterator)


def test_its_own_way_of_making_batches_is_taken():
    dataset = stream_of(Plain(5), collate=sum)

    assert list(dataset.batch(2)) == [10, 50, 40]
    assert list(dataset.batch(2, batch_fn=len)) == [2, 2, 1]


def test_its_repr_is_what_it_is_told_to_be():
    assert repr(IterableStream([], convert=str, told="Numbers")) == "Numbers"
