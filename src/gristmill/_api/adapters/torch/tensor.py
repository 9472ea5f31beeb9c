"""Conversion between PyTorch tensors and NumPy arrays, without a copy where possible."""

import sys
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from gristmill._base.extras import load_extra
from gristmill.errors import MissingExtraError, SourceError
from gristmill.types import AnyArray

Tensor: TypeAlias = Any
"""A `torch.Tensor`. PyTorch is optional, so its types cannot be imported here."""


@cache
def load_torch() -> ModuleType:
    """Import PyTorch. A caller that has a PyTorch dataset has it installed."""
    return load_extra("torch", extra="torch", wanted_by="`from_torch`")


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor, without importing PyTorch.

    If PyTorch has not been imported yet, there are no tensors.
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_image(value: object) -> bool:
    """Return whether a value is a Pillow image, without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def view_as_array(tensor: Tensor) -> AnyArray:
    """Return an array that shares the memory of a tensor.

    >>> import torch
    >>> tensor = torch.zeros(2)
    >>> tensor[1] = 7
    >>> view_as_array(tensor)
    array([0., 7.], dtype=float32)

    Raises:
        SourceError: If NumPy cannot represent the tensor. The message contains the remedy.
    """
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):
        return _view_unusual_tensor(tensor)


def view_as_tensor(array: AnyArray) -> Tensor | None:
    """Return a writable tensor that shares the memory of an array, or None if it has no such dtype.

    >>> view_as_tensor(np.zeros(2, np.float32))
    tensor([0., 0.])
    """
    try:
        return load_torch().from_numpy(array)
    except TypeError:
        return None


def to_owned_array(tensor: Tensor) -> AnyArray | np.generic:
    """Return an array that shares memory with nothing else, or a scalar if the tensor has no axes.

    A tensor that is the only one on its memory is not copied. A view of a larger tensor is copied,
    since the larger tensor may belong to the dataset.

    >>> import torch
    >>> to_owned_array(torch.tensor(1.5))
    np.float32(1.5)
    """
    array = view_as_array(tensor)
    if not array.ndim:
        return array[()]
    return array if tensor.untyped_storage().nbytes() == tensor.nbytes else array.copy()


def _view_unusual_tensor(tensor: Tensor) -> AnyArray:
    """View a tensor that `Tensor.numpy` refuses, or raise an error with the remedy."""
    torch = load_torch()
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        remedy = "to_padded_tensor(0)" if tensor.is_nested else "to_dense()"
        raise SourceError(
            f"The dataset returns a {kind} tensor, but arrays are dense. Call `.{remedy}` on it in "
            "the dataset, or pass a `collate_fn` that does."
        )
    if tensor.device.type != "cpu":
        raise SourceError(
            f"The dataset returns a tensor on {str(tensor.device)!r}, but arrays are in CPU "
            "memory. Keep the data on the CPU, or call `.cpu()` on it in the dataset."
        )
    if tensor.is_quantized:
        raise SourceError(
            "The dataset returns a quantized tensor, which NumPy cannot represent. Call "
            "`.dequantize()` on it in the dataset."
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:
        return _view_with_ml_dtype(plain)


def _view_with_ml_dtype(tensor: Tensor) -> AnyArray:
    """View a tensor of a dtype that NumPy has only through `ml_dtypes`, such as bfloat16."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        ml_dtypes = load_extra("ml_dtypes", extra="jax", wanted_by=f"A tensor of {name}")
    except MissingExtraError:
        raise SourceError(
            f"The dataset returns a tensor of {name}, which NumPy supports only with the package "
            "'ml_dtypes'. Install it with `pip install ml_dtypes`, or call `.float()` in the "
            "dataset."
        ) from None
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        raise SourceError(
            f"The dataset returns a tensor of {name}, for which NumPy has no dtype. Call "
            "`.to(...)` on it in the dataset."
        )
    torch = load_torch()
    same_size_dtype = {1: torch.uint8, 2: torch.int16}[np.dtype(dtype).itemsize]
    return tensor.view(same_size_dtype).numpy().view(dtype)
