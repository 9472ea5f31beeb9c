"""`map_rows`: many elements in one call, where the elements are no columns."""

from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, Map, MapDataset, MultiprocessingOptions
from gristmill.errors import BatchError


class Upper(Map):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, element: str) -> str:
        if element == "bad":
            raise ValueError(element)
        return element.upper()

    def map_rows(self, elements: list[str]) -> list[str]:
        self.sizes.append(len(elements))
        return [self.map(element) for element in elements]


WORDS = [f"word{number}" for number in range(1000)]
UPPER = [word.upper() for word in WORDS]


def loader(words: list[str], transform: Any) -> DataLoader:
    return DataLoader(
        data_source=words,
        sampler=IndexSampler(len(words), num_epochs=1),
        operations=[transform],
    )


def test_it_is_called_for_many_strings_at_once():
    of_dataset, of_loader = Upper(), Upper()

    assert list(MapDataset.source(WORDS).map(of_dataset)) == UPPER
    assert list(loader(WORDS, of_loader)) == UPPER
    for transform in (of_dataset, of_loader):
        assert sum(transform.sizes) == len(WORDS)
        assert max(transform.sizes) > 1


def test_it_runs_in_workers():
    stream = MapDataset.source(WORDS).map(Upper()).to_iter_dataset()

    assert list(stream.mp_prefetch(MultiprocessingOptions(num_workers=1))) == UPPER


def test_elements_that_a_filter_removed_are_not_passed():
    transform = Upper()
    dataset = MapDataset.source(WORDS).filter(lambda word: word.endswith("7")).map(transform)

    assert list(dataset) == [word for word in UPPER if word.endswith("7")]
    assert sum(transform.sizes) == 100


def test_an_error_names_its_element_and_follows_the_elements_before_it():
    iterator = iter(MapDataset.source([*WORDS[:5], "bad", "x"]).map(Upper()))

    assert [next(iterator) for _ in range(5)] == UPPER[:5]
    with pytest.raises(ValueError, match="bad") as caught:
        next(iterator)
    assert "on element 5" in caught.value.__notes__[0]


class TooFew(Map):
    def map(self, element: str) -> str:
        return element

    def map_rows(self, elements: list[str]) -> list[str]:
        return elements[1:]


def test_a_wrong_number_of_results_is_an_error():
    with pytest.raises(BatchError, match=r"`map_rows` of TooFew returned \d+ elements for \d+\."):
        list(MapDataset.source(WORDS).map(TooFew()))
