"""Elements that a dataset leaves out, or batches that never come: the user is warned."""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gristmill import IterDataset, MapDataset, MultiprocessingOptions
from gristmill._base import log_once
from gristmill.errors import GristmillWarning


class Gaps:
    """A source of which every seventh record is `None`."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int | None:
        return None if index % 7 == 3 else index


PRESENT = [index for index in range(100) if index % 7 != 3]

PLANS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda ds: ds,
    "mapped": lambda ds: ds.map(lambda x: x),
    "in order": lambda ds: ds.seed(1).slice(slice(0, 100)).map(lambda x: x),
    "filtered": lambda ds: ds.filter(lambda x: True),
    "threads": lambda ds: ds.map(lambda x: x).to_iter_dataset(),
    "workers": lambda ds: ds.to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=2)),
    "concatenated": lambda ds: MapDataset.concatenate([ds, MapDataset.range(0, 1).slice(slice(0))]),
}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "is None" in record.getMessage()]


@pytest.fixture(autouse=True)
def _nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_once, "_seen", set())


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_records_that_are_none_are_left_out_and_logged_once(
    plan: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
):
    dataset = plan(MapDataset.source(Gaps()))

    for _ in range(2):
        assert list(dataset) == PRESENT

    (message,) = messages(caplog)
    assert "A record of Gaps(<100 records>) is None (element " in message
    assert message.endswith(
        "None stands for an absent element of a `MapDataset`: iteration leaves all of them out. To "
        "keep them, use another value, or `to_iter_dataset(allow_nones=True)`."
    )
    assert f"of the dataset at {__file__}:" in message


def test_batches_without_the_records_that_are_none_are_logged(caplog: pytest.LogCaptureFixture):
    batches = list(MapDataset.source(Gaps()).to_iter_dataset().batch(5))

    assert [x for batch in batches for x in batch.tolist()] == PRESENT
    assert len(messages(caplog)) == 1


def test_nothing_is_logged_of_elements_that_the_user_removes(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)

    assert list(MapDataset.range(10).filter(lambda x: x > 4)) == [5, 6, 7, 8, 9]
    assert list(MapDataset.range(10).map(lambda x: x if x > 4 else None)) == [5, 6, 7, 8, 9]
    kept = list(MapDataset.source(Gaps()).to_iter_dataset(allow_nones=True))

    assert len(kept) == 100
    assert messages(caplog) == []


NO_BATCH = (
    "There will be no batch: `drop_remainder` needs 5 elements, there are at most 3. Use a smaller "
    "`batch_size`, or keep the remainder."
)


@pytest.mark.parametrize(
    "dataset",
    [
        MapDataset.range(3).batch(5, drop_remainder=True),
        MapDataset.range(3).shuffle(seed=0).batch(5, drop_remainder=True).map(lambda x: x),
        MapDataset.range(3).to_iter_dataset().batch(5, drop_remainder=True),
        MapDataset.range(9)[::3].to_iter_dataset().filter(bool).batch(5, drop_remainder=True),
    ],
    ids=["map", "shuffled", "iter", "filtered"],
)
def test_a_batch_that_never_comes_is_warned_of_at_its_line(
    dataset: MapDataset[Any] | IterDataset[Any],
):
    with pytest.warns(GristmillWarning) as caught:
        assert list(dataset) == []

    assert [str(warning.message) for warning in caught] == [NO_BATCH]
    assert caught[0].filename == __file__


def test_by_default_a_batch_that_never_comes_is_warned_of_once(recwarn: pytest.WarningsRecorder):
    dataset = MapDataset.range(3).batch(5, drop_remainder=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            assert list(dataset) == []

    assert [str(warning.message) for warning in caught] == [NO_BATCH]


@pytest.mark.parametrize(
    "dataset",
    [
        MapDataset.range(5).batch(5, drop_remainder=True),
        MapDataset.range(3).batch(5),
        MapDataset.range(3).repeat(2).batch(5, drop_remainder=True),
    ],
)
def test_a_batch_that_comes_is_not_warned_of(dataset: MapDataset[Any] | IterDataset[Any]):
    assert len(list(dataset)) == 1
