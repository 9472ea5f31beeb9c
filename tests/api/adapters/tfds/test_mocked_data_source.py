"""Sources of `tfds.data_source` while TFDS mocks its data, as test suites of other projects do."""

import logging
from typing import Any

import numpy as np
import pytest

import gristmill as gm

tfds: Any = pytest.importorskip("tensorflow_datasets")


@pytest.mark.parametrize("worker_count", [0, 1])
def test_a_mocked_data_source_is_read_one_by_one(
    worker_count: int, caplog: pytest.LogCaptureFixture
):
    with tfds.testing.mock_data(num_examples=10):
        source = tfds.data_source("mnist", split="train")
        with (
            caplog.at_level(logging.INFO, logger="gristmill"),
            gm.DataLoader(
                data_source=source,
                sampler=gm.IndexSampler(10, num_epochs=1),
                operations=[gm.Batch(4)],
                worker_count=worker_count,
            ) as loader,
        ):
            batches = list(loader)
    assert [batch["image"].shape for batch in batches] == [
        (4, 28, 28, 1),
        (4, 28, 28, 1),
        (2, 28, 28, 1),
    ]
    found = [record for record in caplog.records if "are read one by one" in record.getMessage()]
    assert found


def test_datasets_read_a_mocked_data_source():
    with tfds.testing.mock_data(num_examples=6):
        ds = gm.MapDataset.source(tfds.data_source("mnist", split="train"))
        assert len(ds) == 6
        labels = np.concatenate([batch["label"] for batch in ds.seed(1).shuffle().batch(3)])
    assert labels.shape == (6,)


class TakesNoList:
    """A source whose `__getitems__` has another signature."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return index * 10

    def __getitems__(self, record_keys: list[int], extra: int) -> list[int]:
        raise AssertionError("never called")


def test_a_batched_read_that_does_not_take_a_list_is_replaced_by_single_reads():
    source: Any = TakesNoList()
    assert list(gm.MapDataset.source(source)) == [0, 10, 20, 30, 40]
