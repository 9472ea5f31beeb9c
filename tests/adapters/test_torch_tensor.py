"""Tensors become arrays on the same memory, or an error says what to do."""

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from PIL import Image

from gristmill.adapters._torch_tensor import is_picture, is_tensor, own_array, shared_array
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
def test_an_array_is_on_the_memory_of_its_tensor(dtype: torch.dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)

    array = shared_array(tensor)

    assert array.dtype.name == str(dtype).removeprefix("torch.")
    assert array.tolist() == tensor.tolist()
    assert array.ctypes.data == tensor.data_ptr()


def test_a_tensor_that_has_its_memory_to_itself_is_not_copied():
    tensor = torch.arange(6.0).reshape(2, 3)

    assert np.shares_memory(own_array(tensor), tensor.numpy())
    assert np.shares_memory(own_array(tensor.T), tensor.numpy())


@pytest.mark.parametrize(
    "view",
    [lambda t: t[1], lambda t: t[:, :2], lambda t: t[1:2].expand(4, 3)],
    ids=["row", "crop", "expanded"],
)
def test_a_view_of_other_memory_is_copied_for_who_owns_the_element(view: Any):
    tensor = torch.arange(6.0).reshape(2, 3)
    before = view(tensor).tolist()

    array = own_array(view(tensor))

    assert array.tolist() == before
    assert not np.shares_memory(array, tensor.numpy())


def test_a_tensor_without_axes_is_a_scalar_of_its_type():
    scalar = own_array(torch.tensor(3, dtype=torch.int16))

    assert type(scalar) is np.int16
    assert scalar == 3


def test_gradients_are_left_behind():
    tensor = torch.ones(2, requires_grad=True)

    assert np.shares_memory(shared_array(tensor), tensor.detach().numpy())


def test_conjugated_and_negated_tensors_are_what_they_stand_for():
    tensor = torch.tensor([1 + 2j, 3 - 1j])

    assert shared_array(tensor.conj()).tolist() == [1 - 2j, 3 + 1j]
    assert shared_array(tensor.conj().imag).tolist() == [-2, 1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, ml_dtypes.bfloat16), (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn)],
    ids=str,
)
def test_types_of_ml_dtypes_are_kept(dtype: torch.dtype, expected: Any):
    tensor = torch.tensor([1.5, -2.0]).to(dtype)

    array = shared_array(tensor)

    assert array.dtype == expected
    assert array.astype(np.float32).tolist() == [1.5, -2.0]
    assert array.ctypes.data == tensor.data_ptr()
    assert own_array(tensor[0]) == expected(1.5)


def test_without_ml_dtypes_an_error_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    with pytest.raises(SourceError, match=r"of bfloat16.*`pip install ml_dtypes`.*`\.float\(\)`"):
        shared_array(torch.ones(2, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(2).to_sparse(), r"a sparse_coo tensor.*`\.to_dense\(\)`"),
        (lambda: torch.ones(2, device="meta"), r"a tensor on 'meta'.*`\.cpu\(\)`"),
        (lambda: torch.empty(2, dtype=torch.float4_e2m1fn_x2), r"of float4.*no type for"),
    ],
    ids=["sparse", "not on the CPU", "no type"],
)
def test_what_no_array_holds_is_an_error_with_the_remedy(make: Any, message: str):
    with pytest.raises(SourceError, match=message):
        shared_array(make())


def test_tensors_and_pictures_are_told_from_the_rest():
    assert is_tensor(torch.nn.Parameter(torch.ones(1)))
    assert not is_tensor(np.ones(1))
    assert is_picture(Image.new("L", (2, 2)))
    assert not is_picture("picture")
