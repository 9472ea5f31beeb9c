"""The sources over Hugging Face datasets read rows as dicts or columns, in the dataset's order."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from gristmill import MapDataset
from gristmill.errors import SourceError
from gristmill.testing import SourceSuite
from tests.api.adapters.huggingface.hf_samples import (
    COUNT,
    MAKERS,
    convert,
    double,
    make,
    on_disk,
    ragged,
    rows,
    source_of,
)

from datasets import Array2D, Dataset, Features  # isort: skip

TESTED = ["shuffled files", "files and memory", "numbers", "flattened files", "nulls in numpy"]
TESTED += ["ragged", "images", "no rows", "transform"]


class TestDatasetSource(SourceSuite):
    @pytest.fixture(params=TESTED)
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        return source_of(MAKERS[request.param](tmp_path))


def test_numbers_and_strings_are_read_as_columns(tmp_path: Path):
    source = source_of(on_disk(rows(), tmp_path, num_shards=3).shuffle(seed=0))

    assert source.is_columnar
    assert not isinstance(source.read_columns(np.array([30, 2, 17])), list)


def test_lists_are_columns_if_those_of_a_block_have_one_length():
    source = source_of(ragged())

    assert not isinstance(source.read_columns(np.array([0, 4, 8])), list)
    assert source.read_columns(np.array([0, 4, 8])).gather()["x"].tolist() == [[1, 2]] * 3
    assert isinstance(source.read_columns(np.array([0, 1])), list)


@pytest.mark.parametrize("odd", [[[1, 2, 3]], [[1, 2]], [[1, 2]] * 3], ids=["wide", "low", "high"])
def test_a_value_of_another_shape_is_an_error_in_numpy_and_a_list_without(odd: Any):
    kind = Features({"x": Array2D((2, 2), "int8")}).arrow_schema.field("x").type
    stored = pa.array([[[1, 2], [3, 4]], odd], kind.storage_type)
    dataset = Dataset(pa.table({"x": pa.ExtensionArray.from_storage(kind, stored)}))

    assert convert(dataset)[0]["x"].tolist() == [[1, 2], [3, 4]]
    assert [one.tolist() for one in convert(dataset)[1]["x"]] == odd
    with pytest.raises(SourceError, match=r"column 'x' does not have the shape \(2, 2\)"):
        convert(dataset.with_format("numpy"))[1]


def test_a_transform_is_called_with_blocks_of_rows():
    ds = convert(rows().with_transform(double))

    assert [row["twice"] for row in ds] == [2 * number for number in range(COUNT)]


def test_tensors_that_a_transform_returns_become_arrays():
    dataset = rows().with_transform(lambda batch: {"x": torch.tensor(batch["x"])})

    assert [type(row["x"]) for row in convert(dataset)][:1] == [np.ndarray]


def test_a_transform_that_returns_fewer_rows_is_an_error():
    dataset = rows().with_transform(lambda batch: {"id": batch["id"][:1]})

    message = "returned 1 rows for 3. It must return one row for each"
    with pytest.raises(SourceError, match=re.escape(message)):
        convert(dataset)._plan_node.source.__getitems__([0, 1, 2])


def test_the_repr_describes_length_columns_format_and_order():
    many = make({"int8": [1, 2, 3]}).with_format("numpy").shuffle(seed=0)
    wide = Dataset.from_dict({f"a long name of a column {number}": [1] for number in range(50)})

    assert repr(source_of(rows())) == "HuggingFaceDataset(<40 rows>, columns=[id, x, pixels, text])"
    assert re.fullmatch(
        r"HuggingFaceDataset\(<3 rows>, columns=\[int8\], format='numpy', order=[0-9a-f]{8}\)",
        repr(source_of(many)),
    )
    assert "columns=[50 from 'a long name of a column 0' to" in repr(source_of(wide))
    assert isinstance(convert(wide), MapDataset)


def test_states_of_different_row_orders_differ():
    dataset = Dataset.from_dict({"x": list(range(9))})

    states = [
        json.dumps(iter(convert(one).to_iter_dataset()).get_state())
        for one in (dataset.shuffle(seed=0), dataset.shuffle(seed=0), dataset.shuffle(seed=1))
    ]

    assert states[0] == states[1] != states[2]
