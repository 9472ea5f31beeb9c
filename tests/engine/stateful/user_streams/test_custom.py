"""Users' own `IterDataset`s under `mp_prefetch`: workers compute what their iterators read."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import gristmill as gm

Element = tuple[int, int]


class Copy(gm.DatasetIterator[Any]):
    """Yields what its parent yields."""

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> Any:
        return {"parent": self._parent.get_state()}

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state["parent"])


class Buffering(Copy):
    """Takes its first element before it is asked for one."""

    def __init__(self, parent: gm.DatasetIterator[Any]) -> None:
        super().__init__(parent)
        self._first = [next(parent)]

    def __next__(self) -> Any:
        return self._first.pop() if self._first else super().__next__()


class Stateless(gm.DatasetIterator[Any]):
    """Counts, and has no states."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = iter(range(20))

    def __next__(self) -> int:
        return next(self._numbers)

    def get_state(self) -> Any:
        raise NotImplementedError("no state")

    def set_state(self, state: Any) -> None:
        raise NotImplementedError("no state")


class Secretive(gm.DatasetIterator[Any]):
    """Reads from an iterator that the base class is not informed of."""

    def __init__(self, source: gm.DatasetIterator[Any]) -> None:
        super().__init__()
        self._source = source

    def __next__(self) -> Any:
        return next(self._source)

    def get_state(self) -> Any:
        return self._source.get_state()

    def set_state(self, state: Any) -> None:
        self._source.set_state(state)


class Own(gm.IterDataset[Any]):
    """A dataset whose iterator a function makes."""

    def __init__(
        self, parent: gm.IterDataset[Any], make: Callable[[gm.IterDataset[Any]], Any]
    ) -> None:
        super().__init__(parent)
        self._make = make

    def __iter__(self) -> Any:
        return self._make(self._parent)


class Counting(gm.IterDataset[int]):
    def __iter__(self) -> Any:
        return Stateless()


def with_process_id(number: int) -> Element:
    return number, os.getpid()


def numbers() -> gm.IterDataset[Any]:
    return gm.MapDataset.range(20).map(with_process_id).to_iter_dataset()


def in_workers(dataset: gm.IterDataset[Any]) -> gm.IterDataset[Any]:
    return dataset.mp_prefetch(gm.MultiprocessingOptions(num_workers=2))


READERS: dict[str, Callable[[], gm.IterDataset[Any]]] = {
    "one parent": lambda: Own(numbers(), lambda parent: Copy(iter(parent))),
    "an iterator of gristmill": lambda: Own(numbers(), lambda parent: iter(parent.filter(bool))),
    "a mixture": lambda: Own(
        gm.IterDataset.mix([numbers(), numbers()]), lambda parent: Copy(iter(parent))
    ),
    "another of the user's": lambda: Own(
        Own(numbers(), lambda parent: Copy(iter(parent))).map(lambda element: element),
        lambda parent: Copy(iter(parent)),
    ),
}


def values(elements: Iterable[Element]) -> list[int]:
    return [number for number, _ in elements]


@pytest.mark.parametrize("make", READERS.values(), ids=list(READERS))
def test_workers_compute_what_an_iterator_of_the_user_reads(
    make: Callable[[], gm.IterDataset[Any]],
):
    with iter(make()) as plain:
        expected = values(plain)

    with iter(in_workers(make())) as iterator:
        elements = list(iterator)

    assert values(elements) == expected
    assert os.getpid() not in {process for _, process in elements}


@pytest.mark.parametrize("make", READERS.values(), ids=list(READERS))
def test_it_resumes_with_and_without_workers(make: Callable[[], gm.IterDataset[Any]]):
    plan = make().map(lambda element: element)
    with iter(in_workers(plan)) as iterator, iter(plan) as plain:
        for _ in range(7):
            next(iterator)
        plain.set_state(iterator.get_state())

        assert values(iterator) == values(plain)


def test_elements_that_it_read_before_are_not_read_again():
    ds = Own(numbers(), lambda parent: Buffering(iter(parent)))

    with iter(in_workers(ds)) as iterator:
        elements = list(iterator)

    assert values(elements) == list(range(20))
    assert os.getpid() not in {process for _, process in elements[1:]}


def test_it_may_read_from_an_iterator_without_states():
    ds = Own(Counting().map(lambda number: number), lambda parent: Copy(iter(parent)))

    with iter(in_workers(ds)) as iterator:
        assert list(iterator) == list(range(20))


def test_an_iterator_that_is_not_passed_to_the_base_class_computes_here():
    ds = Own(numbers(), lambda parent: Secretive(iter(parent)))

    with iter(in_workers(ds)) as iterator:
        elements = list(iterator)

    assert values(elements) == list(range(20))
    assert {process for _, process in elements} == {os.getpid()}
