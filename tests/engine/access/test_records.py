"""Records of sources: read by the fastest means, up to a bad record, in any epoch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource, DataLoader, MapDataset, RecordMetadata
from gristmill._base.trees.columns import Columns
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut, open_dataset
from gristmill._engine.blocks.block import BlockResult
from gristmill.errors import SourceError


class OneByOne:
    """Reads one record at a time; record 3 is bad."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        assert type(index) is int
        if index == 3:
            raise OSError("bad record")
        return index * 10


class AtOnce(OneByOne):
    """Also reads many, all or nothing."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if not isinstance(indices, range):
            assert type(indices[0]) is int
        return [self[index] for index in indices]


class OnlyOneByOne(OneByOne):
    """Reads any record alone, and never many."""

    def __getitem__(self, index: int) -> Any:
        return index * 10

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        raise OSError("too many")


class TooFew(OnlyOneByOne):
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [0]


def read(source: Any, span: Any) -> BlockResult:
    return open_dataset(MapDataset.source(source)._plan_node)(span)


@pytest.mark.parametrize("source", [OneByOne(), AtOnce()])
def test_records_before_a_bad_one_are_delivered(source: Any):
    result = read(source, np.array([4, 0, 3, 1]))

    assert result.block.rows() == [40, 0]
    assert str(result.error) == "bad record"
    assert result.row == 2
    assert "on element 3." in result.error.__notes__[0]  # type: ignore[union-attr]


def test_an_error_of_all_records_together_is_reported_at_the_first():
    result = read(OnlyOneByOne(), range(1, 3))

    assert len(result.block) == 0
    assert str(result.error) == "too many"
    assert "on element 1." in result.error.__notes__[0]  # type: ignore[union-attr]


def test_a_wrong_number_of_records_is_an_error():
    error = read(TooFew(), range(1, 3)).error

    assert isinstance(error, SourceError)
    assert str(error) == "`__getitems__` returned 1 records for 2 indices."


@pytest.mark.parametrize("span", [range(8, 13), range(-2, 1), np.array([12, 3, 27])])
def test_indices_past_the_length_are_of_later_epochs(span: Any):
    columns = read(ArraySource(np.arange(5) * 10), span).block

    assert isinstance(columns.data, Columns)
    assert columns.rows() == [index % 5 * 10 for index in span]
    assert columns.lineage.positions().tolist() == list(span)


class OwnSampler:
    """Returns no metadata for index 4, a record out of bounds for 5, and raises for 6."""

    def __init__(self, *, with_generators: bool = True) -> None:
        self._with_generators = with_generators

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            return "metadata"
        if index == 6:
            raise RuntimeError("no such index")
        rng = np.random.default_rng(index) if self._with_generators else None
        return RecordMetadata(index, 50 if index == 5 else index * 2 % 5, rng)


def sampled(positions: range, **options: Any) -> BlockResult:
    loader = DataLoader(data_source=list("abcde"), sampler=OwnSampler(**options))
    return open_cut(cut_plan(loader._plan_node, skips_errors=False, below_batches=False))(positions)


@pytest.mark.parametrize(
    ("positions", "elements", "message"),
    [
        (range(3), ["a", "c", "e"], None),
        (
            range(2, 6),
            ["e", "b"],
            "The sampler must return the integer index of a record",
        ),
        (range(5, 9), [], "The sampler asks for record 50, the source has 5."),
        (range(6, 7), [], "no such index"),
    ],
)
def test_an_error_of_a_users_sampler_follows_the_records_before_it(
    positions: range, elements: list[str], message: str | None
):
    result = sampled(positions)

    assert result.block.rows() == elements
    assert (result.error is None) is (message is None)
    assert str(result.error).startswith(str(message))


def test_generators_of_a_users_sampler_come_with_their_records():
    generators = sampled(range(2, 6)).block.generators

    assert generators is not None
    assert len(generators) == 2
    assert sampled(range(2), with_generators=False).block.generators is None
