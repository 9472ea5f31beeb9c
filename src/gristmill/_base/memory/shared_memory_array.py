"""Arrays in named shared memory, which other processes attach to without a copy.

The engine does not use them: it sends batches through slots that it reuses. They are for programs
written for Grain that exchange arrays with processes of their own.
"""

import math
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from threading import BoundedSemaphore
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray


@final
@dataclass(frozen=True, slots=True)
class SharedMemoryArrayMetadata:
    """What a process needs to attach to a `SharedMemoryArray`.

    >>> metadata = SharedMemoryArray((2, 3), np.int32).metadata
    >>> metadata.shape, metadata.dtype
    ((2, 3), dtype('int32'))
    >>> metadata.close_and_unlink_shm()

    Args:
        name: The name of the shared memory.
        shape: The shape of the array.
        dtype: Its type.
    """

    name: str
    shape: Iterable[int]
    dtype: DTypeLike

    def close_and_unlink_shm(self) -> None:
        """Free the memory, without attaching an array to it."""
        memory = SharedMemory(self.name)
        memory.close()
        memory.unlink()


class SharedMemoryArray(np.ndarray[Any, Any]):
    """An array in shared memory. A pickled one contains only the name of its memory.

    The memory is detached when the array and all views of it are gone. It exists until a process
    unlinks it: call `unlink_on_del` in the last process that uses it.

    >>> array = SharedMemoryArray((2, 3), np.int32)
    >>> array[:] = 7
    >>> other = SharedMemoryArray.from_metadata(array.metadata)
    >>> other.unlink_on_del()
    >>> int(other.sum())
    42

    Args:
        shape: The shape of the new array.
        dtype: Its type.
    """

    shm: SharedMemory | None
    _release: "_Release | None"

    def __new__(cls, shape: Iterable[int], dtype: DTypeLike = float) -> "SharedMemoryArray":
        shape = tuple(shape)
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = SharedMemory(create=True, size=max(size, 1))
        return cls.from_shared_memory(memory, shape, dtype)

    @classmethod
    def from_shared_memory(
        cls, shm: SharedMemory, shape: Any, dtype: DTypeLike
    ) -> "SharedMemoryArray":
        """Return the array in some shared memory.

        Args:
            shm: The memory, which the array detaches from when it is deleted.
            shape: The shape of the array.
            dtype: Its type.
        """
        array = super().__new__(cls, tuple(shape), dtype, buffer=shm.buf)
        array.shm = shm
        array._release = _Release(shm)
        weakref.finalize(array, array._release)
        return array

    @classmethod
    def from_metadata(cls, metadata: SharedMemoryArrayMetadata) -> "SharedMemoryArray":
        """Attach to the memory of another array.

        Args:
            metadata: That of the other array.
        """
        memory = SharedMemory(metadata.name)
        return cls.from_shared_memory(memory, metadata.shape, metadata.dtype)

    @property
    def metadata(self) -> SharedMemoryArrayMetadata:
        """What another process needs to attach to this array."""
        if self.shm is None:
            raise ValueError("The array is not in shared memory: it was computed from one that is.")
        return SharedMemoryArrayMetadata(name=self.shm.name, shape=self.shape, dtype=self.dtype)

    def unlink_on_del(self) -> None:
        """Free the memory when this array is deleted."""
        if self._release is not None:
            self._release.unlinks = True

    @classmethod
    def enable_async_del(cls, num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
        """Detach from memory in background threads, because that takes time for large arrays.

        Args:
            num_threads: The number of threads.
            max_outstanding_requests: How many arrays may wait for them. Further ones are detached
                where they are deleted.
        """
        if _Release.threads is None:
            _Release.waiting = BoundedSemaphore(max(num_threads, max_outstanding_requests))
            _Release.threads = ThreadPoolExecutor(num_threads, "gristmill-detach")

    @classmethod
    def close_shm_async(cls, shm: SharedMemory, unlink: bool) -> None:
        """Detach from memory. The background threads call it.

        Args:
            shm: The memory.
            unlink: Whether to free it, too.
        """
        _detach(shm, unlink)

    def __array_finalize__(self, obj: NDArray[Any] | None, /) -> None:
        self.shm = self._release = None
        if isinstance(obj, SharedMemoryArray) and np.may_share_memory(self, obj):
            self.shm, self._release = obj.shm, obj._release  # noqa: SLF001 - the same class

    def __array_wrap__(
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False, /
    ) -> Any:
        """Return results of computations as plain arrays, which are not in shared memory."""
        if array is self:
            return array
        return array[()] if return_scalar else array.view(np.ndarray)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the name of the memory; a view, or a copy of the array, as a plain array."""
        base: Any = self.base
        if self.shm is None or isinstance(base, np.ndarray):  # a view may begin anywhere
            return np.array(self).__reduce_ex__(protocol)
        return SharedMemoryArray.from_shared_memory, (self.shm, self.shape, self.dtype)


class _Release:
    """Detaches from the memory of a deleted array."""

    threads: ThreadPoolExecutor | None = None
    waiting: BoundedSemaphore | None = None

    def __init__(self, shm: SharedMemory) -> None:
        self._shm = shm
        self.unlinks = False

    def __call__(self) -> None:
        waiting = _Release.waiting
        if _Release.threads is None or waiting is None or not waiting.acquire(blocking=False):
            _detach(self._shm, self.unlinks)
            return
        done = _Release.threads.submit(SharedMemoryArray.close_shm_async, self._shm, self.unlinks)
        done.add_done_callback(lambda _: waiting.release())


def _detach(shm: SharedMemory, unlink: bool) -> None:
    shm.close()
    if unlink:
        shm.unlink()
