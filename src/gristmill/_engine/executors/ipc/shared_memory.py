"""Anonymous memory that several processes map: it has no name, so it cannot be left behind.

`mmap.mmap` keeps a descriptor for every mapping, and a thousand batches that somebody keeps would
be a thousand open files. So the system's own call is used: once mapped, the descriptor is closed.
"""

import ctypes
import mmap
import os
import tempfile
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value

ALIGNMENT = 64
"""Bytes: a cache line, and what JAX asks for to take an array on the CPU as it is."""


def aligned(num_bytes: int) -> int:
    """Round up to where the next array may begin.

    >>> aligned(0), aligned(1), aligned(64)
    (0, 64, 64)
    """
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def create_memory(num_bytes: int) -> int:
    """Give a descriptor of fresh memory.

    memfd takes no room in /dev/shm, which in a container is 64 MB. Where there is none, it is a
    file that nobody else can open, in the folder for temporary files.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gristmill")
        os.ftruncate(descriptor, num_bytes)
        return descriptor
    with tempfile.TemporaryFile(prefix="gristmill-") as file:
        if hasattr(os, "posix_fallocate"):
            # Reserved at once: to find the disk full is an error here, and a SIGBUS later.
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        else:
            os.ftruncate(file.fileno(), num_bytes)
        return os.dup(file.fileno())


@final
class Mapping:
    """Some memory at an address of this process, until `close`."""

    __slots__ = ("address", "num_bytes")

    def __init__(self, descriptor: int, num_bytes: int, *, is_private: bool = False) -> None:
        self.num_bytes = num_bytes
        flags = mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, num_bytes, protection, flags, descriptor, 0)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{num_bytes} bytes could not be mapped: {os.strerror(code)}")
        self.address: int = address

    def close(self) -> None:
        """Give the memory back. Nothing may point to it any more."""
        _libc.munmap(self.address, self.num_bytes)


@final
class Lease:
    """What the arrays on some memory have as their base: it lives as long as any of them.

    NumPy collapses a chain of views onto the owner of the memory, but not beyond an object that is
    no array, such as this one.

    >>> owner = np.arange(4, dtype=np.uint8)
    >>> array = Lease(owner.ctypes.data, 4).view()[1:]
    >>> array, type(array.base.base).__name__
    (array([1, 2, 3], dtype=uint8), 'Lease')
    """

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
        }

    def view(self) -> NDArray[np.uint8]:
        """Give the memory as bytes that keep the lease."""
        return np.asarray(self)


def address_of(array: NDArray[Any]) -> int:
    """Give where an array begins."""
    return array.__array_interface__["data"][0]
