"""Anonymous shared memory: it has no name, so it cannot outlive the processes that map it.

`mmap.mmap` keeps a descriptor for every mapping, so a list of a thousand batches would need a
thousand open files. The system call itself needs no descriptor once the memory is mapped.
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
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value

ALIGNMENT = 64
"""Bytes of a cache line. JAX on the CPU uses arrays with this alignment without a copy."""


def aligned(num_bytes: int) -> int:
    """Return the first aligned offset after some bytes.

    >>> aligned(0), aligned(1), aligned(64)
    (0, 64, 64)
    """
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def create_memory(num_bytes: int) -> int:
    """Return a descriptor of new memory.

    memfd uses no space in /dev/shm, which in a container is 64 MB. On systems without it, the
    memory is an unlinked file in the folder for temporary files.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gristmill")
        os.ftruncate(descriptor, num_bytes)
        return descriptor
    with tempfile.TemporaryFile(prefix="gristmill-") as file:
        if hasattr(os, "posix_fallocate"):
            # Reserved now: a full disk is an error here, and would be a SIGBUS later.
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        else:
            os.ftruncate(file.fileno(), num_bytes)
        return os.dup(file.fileno())


@final
class Mapping:
    """Memory that is mapped at an address of this process, until `close`."""

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
        """Unmap the memory. No array on it may be alive."""
        _libc.munmap(self.address, self.num_bytes)


@final
class Lease:
    """The base of all arrays on some memory: it is alive as long as any of them.

    NumPy collapses a chain of views to the owner of the memory, but stops at an object that is not
    an array, such as this one.

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
        """Return the memory as bytes that keep the lease alive."""
        return np.asarray(self)


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    return array.__array_interface__["data"][0]


def has_bytes(memory: NDArray[np.uint8], data: memoryview, offset: int) -> bool:
    """Return whether memory has some bytes at an offset, without a copy of either.

    >>> has_bytes(np.arange(5, dtype=np.uint8), memoryview(bytes([3, 4])), 3)
    True
    """
    if offset + len(data) > len(memory):
        return False
    array = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    here, there = address_of(memory) + offset, address_of(array)
    return here == there or not _libc.memcmp(here, there, len(data))
