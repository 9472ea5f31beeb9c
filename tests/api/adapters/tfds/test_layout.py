"""The layout of records describes which fields can be decoded without TFDS, and into columns."""

from typing import Any

import numpy as np
import pytest

from gristmill._api.adapters.tfds.layout import FieldSpec, make_layout
from tests.api.adapters.tfds.tfds_builders import BUILDERS, tfds

INT64, UINT8 = np.dtype(np.int64), np.dtype(np.uint8)

FIELDS: dict[str, tuple[Any, FieldSpec]] = {
    "scalar": (np.int64, FieldSpec(("x",), (), INT64, "numbers")),
    "array": (
        tfds.features.Tensor(shape=(2, 3), dtype=np.uint8),
        FieldSpec(("x",), (2, 3), UINT8, "numbers"),
    ),
    "label": (tfds.features.ClassLabel(num_classes=3), FieldSpec(("x",), (), INT64, "numbers")),
    "string": (tfds.features.Text(), FieldSpec(("x",), (), None, "string")),
    "image": (
        tfds.features.Image(shape=(4, 5, 3)),
        FieldSpec(("x",), (4, 5, 3), UINT8, "image"),
    ),
    "image of any size": (tfds.features.Image(), FieldSpec(("x",))),
    "compressed array": (
        tfds.features.Tensor(shape=(2,), dtype=np.uint8, encoding="zlib"),
        FieldSpec(("x",), (2,), UINT8),
    ),
    "unsigned 64 bits": (np.uint64, FieldSpec(("x",), (), np.dtype(np.uint64))),
    "half precision": (np.float16, FieldSpec(("x",), (), np.dtype(np.float16))),
    "list": (tfds.features.Sequence(np.int64), FieldSpec(("x",))),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_has_a_kind_if_it_can_be_decoded_without_tfds(name: str):
    feature, expected = FIELDS[name]

    layout = make_layout(tfds, tfds.features.FeaturesDict({"x": feature}))

    assert layout.fields == (expected,)


@pytest.mark.parametrize(
    ("kind", "is_plain", "is_columnar", "record_bytes"),
    [
        ("Digits", True, True, 28 * 28 + 8),
        ("Words", True, True, None),
        ("Boxes", False, True, 4 * 4 + 6 * 4),
        ("Ragged", False, False, None),
    ],
)
def test_records_are_plain_or_columnar_if_all_fields_are(
    kind: str, is_plain: bool, is_columnar: bool, record_bytes: int | None, tmp_path: Any
):
    layout = make_layout(tfds, BUILDERS[kind](data_dir=tmp_path).info.features)

    assert (layout.is_plain, layout.is_columnar) == (is_plain, is_columnar)
    assert layout.record_bytes == record_bytes


def test_a_record_is_built_from_the_values_of_the_named_fields():
    features = tfds.features.FeaturesDict({"a": np.int64, "b": {"c": np.int64, "d": np.int64}})

    layout = make_layout(tfds, features, supervised_keys=({"y": "b", "x": "a"}, "a"))

    assert [field.key for field in layout.fields] == ["a", "b/c", "b/d"]
    assert layout.build([1, 2, 3]) == ({"x": 1, "y": {"c": 2, "d": 3}}, 1)
