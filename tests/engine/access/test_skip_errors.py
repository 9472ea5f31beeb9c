"""Bad records are skipped one after the other, and each skip is reported."""

import pytest

from gristmill import DataLoader, Map, SequentialSampler
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block import BlockResult
from gristmill.errors import PlanError


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no description")


class Source:
    """Record 2 cannot be read."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise OSError("cannot read")
        return index


class Raise(Map):
    def __init__(self, **errors: BaseException) -> None:
        self._errors = {int(name[1:]): error for name, error in errors.items()}

    def map(self, element: int) -> int:
        if element in self._errors:
            raise self._errors[element]
        return element


def read(positions: range, **errors: BaseException) -> BlockResult:
    loader = DataLoader(
        data_source=Source(), sampler=SequentialSampler(8), operations=[Raise(**errors)]
    )
    return open_cut(cut_plan(loader._plan_node, skips_errors=True, below_batches=False))(positions)


def test_records_that_cannot_be_read_or_mapped_are_skipped():
    result = read(range(8), _4=ValueError("four"), _5=UnprintableError(), _7=KeyError("seven"))

    assert result.block.rows() == [0, 1, 3, 6]
    assert result.error is None
    assert [(skip.cursor, skip.record.position, skip.record.error) for skip in result.skips] == [
        ((3,), 2, "OSError: cannot read"),
        ((5,), 4, "ValueError: four"),
        ((6,), 5, "UnprintableError"),
        ((8,), 7, "KeyError: 'seven'"),
    ]
    steps = [skip.record.step for skip in result.skips]
    assert steps[0] == "reading Source(<8 records>)"
    assert all(step.startswith("Map ") for step in steps[1:])
    assert all(skip.error.__traceback__ is None for skip in result.skips)


@pytest.mark.parametrize("error", [MemoryError(), PlanError("wrong plan"), SystemExit()])
def test_errors_that_are_not_of_the_record_are_not_skipped(error: BaseException):
    result = read(range(8), _1=ValueError("one"), _4=error)

    assert result.block.rows() == [0, 3]
    assert result.error is error
    assert [skip.record.position for skip in result.skips] == [2, 1]


def test_skips_past_an_error_are_left_out():
    result = read(range(8), _1=MemoryError())

    assert result.block.rows() == [0]
    assert result.skips == ()


def test_a_block_may_be_of_bad_records_only():
    result = read(range(2, 3))

    assert len(result.block) == 0
    assert result.error is None
    assert len(result.skips) == 1
    assert read(range(4, 6), _4=ValueError(), _5=ValueError()).block.rows() == []
