"""Tensors become arrays on the same memory, or an error with the remedy is raised."""

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from PIL import Image

from gristmill._api.adapters.torch.tensor import (
    is_image,
    is_tensor,
    to_owned_array,
    view_as_array,
)
from gristmill.errors import SourceError

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_array_shares_the_memory_of_its_tensor(dtype: torch.dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)

    array = view_as_array(tensor)

    assert array.dtype.name == str(dtype).removeprefix("torch.")
    assert array.tolist() == tensor.tolist()
    assert array.ctypes.data == tensor.data_ptr()


def test_a_tensor_that_shares_its_memory_with_no_other_is_not_copied():
    tensor = torch.arange(6.0).reshape(2, 3)

    assert np.shares_memory(to_owned_array(tensor), tensor.numpy())
    assert np.shares_memory(to_owned_array(tensor.T), tensor.numpy())


@pytest.mark.parametrize(
    "view",
    [lambda t: t[1], lambda t: t[:, :2], lambda t: t[1:2].expand(4, 3)],
    ids=["row", "crop", "expanded"],
)
def test_a_view_of_a_larger_tensor_is_copied(view: Any):
    tensor = torch.arange(6.0).reshape(2, 3)
    before = view(tensor).tolist()

    array = to_owned_array(view(tensor))

    assert array.tolist() == before
    assert not np.shares_memory(array, tensor.numpy())


def test_a_tensor_without_axes_becomes_a_scalar_of_its_dtype():
    scalar = to_owned_array(torch.tensor(3, dtype=torch.int16))

    assert type(scalar) is np.int16
    assert scalar == 3


def test_a_tensor_that_requires_gradients_is_viewed():
    tensor = torch.ones(2, requires_grad=True)

    assert np.shares_memory(view_as_array(tensor), tensor.detach().numpy())


def test_lazily_conjugated_and_negated_tensors_are_resolved():
    tensor = torch.tensor([1 + 2j, 3 - 1j])

    assert view_as_array(tensor.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert view_as_array(tensor.conj().imag).tolist() == [-2, 1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, ml_dtypes.bfloat16), (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn)],
    ids=str,
)
def test_dtypes_of_ml_dtypes_are_kept(dtype: torch.dtype, expected: Any):
    tensor = torch.tensor([1.5, -2.0]).to(dtype)

    array = view_as_array(tensor)

    assert array.dtype == expected
    assert array.astype(np.float32).tolist() == [1.5, -2.0]
    assert array.ctypes.data == tensor.data_ptr()
    assert to_owned_array(tensor[0]) == expected(1.5)


def test_a_missing_ml_dtypes_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    with pytest.raises(SourceError, match=r"of bfloat16.*`pip install ml_dtypes`.*`\.float\(\)`"):
        view_as_array(torch.ones(2, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(2).to_sparse(), r"a sparse_coo tensor.*`\.to_dense\(\)`"),
        (lambda: torch.ones(2, device="meta"), r"a tensor on 'meta'.*`\.cpu\(\)`"),
        (lambda: torch.empty(2, dtype=torch.float4_e2m1fn_x2), r"of float4.*NumPy has no dtype"),
    ],
    ids=["sparse", "not on the CPU", "no type"],
)
def test_a_tensor_that_numpy_cannot_represent_is_an_error_with_the_remedy(make: Any, message: str):
    with pytest.raises(SourceError, match=message):
        view_as_array(make())


def test_tensors_and_images_are_recognized():
    assert is_tensor(torch.nn.Parameter(torch.ones(1)))
    assert not is_tensor(np.ones(1))
    assert is_image(Image.new("L", (2, 2)))
    assert not is_image("image")
