"""A tensor of PyTorch as an array of NumPy, on the same memory where both can hold it."""

import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill.errors import MissingExtraError, SourceError


@cache
def load_torch() -> ModuleType:
    """Give PyTorch; who has one of its datasets has it."""
    return load_extra("torch", extra="torch", wanted_by="`from_torch`")


def is_tensor(thing: Any) -> bool:
    """Tell a tensor. PyTorch is not imported for it: who has one has done so."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def is_picture(thing: Any) -> bool:
    """Tell an image of Pillow, which is imported if there is any."""
    pillow: Any = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(thing, pillow.Image)


def shared_array(tensor: Any) -> Any:
    """Give a tensor as an array on the same memory.

    >>> import torch
    >>> tensor = torch.zeros(2)
    >>> tensor[1] = 7
    >>> shared_array(tensor)
    array([0., 7.], dtype=float32)
    """
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):
        return _shared_with_care(tensor)


def as_tensor(array: NDArray[Any]) -> Any:
    """Give an array as a tensor on the same memory, to be written to; None if it has no such type.

    >>> as_tensor(np.zeros(2, np.float32))
    tensor([0., 0.])
    """
    try:
        return load_torch().from_numpy(array)
    except TypeError:
        return None


def own_array(tensor: Any) -> Any:
    """Give a tensor as an array that is nobody else's; without axes, as a scalar.

    A tensor that has its memory to itself is not copied. One that views a part of a larger one
    is: that one may be the dataset's own.

    >>> import torch
    >>> own_array(torch.tensor(1.5))
    np.float32(1.5)
    """
    array = shared_array(tensor)
    if not array.ndim:
        return array[()]
    return array if tensor.untyped_storage().nbytes() == tensor.nbytes else array.copy()


def _shared_with_care(tensor: Any) -> Any:
    """Give a tensor that NumPy does not take as it is, or explain why it cannot."""
    torch: Any = load_torch()
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        remedy = "to_padded_tensor(0)" if tensor.is_nested else "to_dense()"
        raise SourceError(
            f"The dataset gives a {kind} tensor, and arrays are dense. Call `.{remedy}` on it in "
            "the dataset, or pass a `collate_fn` that does."
        )
    if tensor.device.type != "cpu":
        raise SourceError(
            f"The dataset gives a tensor on {str(tensor.device)!r}, and arrays are in the CPU's "
            "memory. Keep the data on the CPU, or call `.cpu()` on it in the dataset."
        )
    if tensor.is_quantized:
        raise SourceError(
            "The dataset gives a quantized tensor, which no array holds. Call `.dequantize()` on "
            "it in the dataset."
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:
        return _with_type_of_ml_dtypes(plain)


def _with_type_of_ml_dtypes(tensor: Any) -> Any:
    """Give a tensor of a type that NumPy knows only through `ml_dtypes`, such as bfloat16."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        ml_dtypes: Any = load_extra("ml_dtypes", extra="jax", wanted_by=f"A tensor of {name}")
    except MissingExtraError:
        raise SourceError(
            f"The dataset gives a tensor of {name}, which NumPy knows only with the package "
            "'ml_dtypes'. Install it with `pip install ml_dtypes`, or call `.float()` in the "
            "dataset."
        ) from None
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        raise SourceError(
            f"The dataset gives a tensor of {name}, which NumPy has no type for. Call `.to(...)` "
            "on it in the dataset."
        )
    torch: Any = load_torch()
    bits = {1: torch.uint8, 2: torch.int16}[np.dtype(dtype).itemsize]
    return tensor.view(bits).numpy().view(dtype)
