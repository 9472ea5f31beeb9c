"""A store in memory that all workers of this process share.

Its files are anonymous: a worker opens them through `/proc`, and they are gone with the process.
"""

import os
import uuid
import weakref
from pathlib import Path
from typing import final

from gristmill._data.element_store.codec import PICKLE_CODEC
from gristmill._data.element_store.store import FILES, ElementStore

_TOKEN_FILE = "token"


@final
class MemoryFiles:
    """Anonymous files, which are freed with the last object that refers to them.

    A copy in a worker refers to the files of the process that created them.
    """

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex.encode()
        names = (*FILES, _TOKEN_FILE)
        self._owner = os.getpid()
        self._files = {name: os.memfd_create(f"gristmill-{name}") for name in names}
        os.pwrite(self._files[_TOKEN_FILE], self.token, 0)
        weakref.finalize(self, _close, self._owner, list(self._files.values()))

    def open(self, num_elements: int, max_bytes: int) -> ElementStore | None:
        """Open the store, or return `None` if the process that created it is gone."""
        try:
            files = {name: self._reopen(name) for name in self._files}
        except OSError:
            return None
        token = os.pread(files[_TOKEN_FILE], len(self.token), 0)
        os.close(files.pop(_TOKEN_FILE))
        if token != self.token:  # another process with the same id
            for descriptor in files.values():
                os.close(descriptor)
            return None
        return ElementStore(
            files, Path("in memory"), num_elements, lambda _: max_bytes, PICKLE_CODEC
        )

    def _reopen(self, name: str) -> int:
        """Return a descriptor with locks of its own."""
        path = f"/proc/{self._owner}/fd/{self._files[name]}"
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)


def _close(owner: int, descriptors: list[int]) -> None:
    if os.getpid() == owner:  # not in a fork, which has copies of the descriptors
        for descriptor in descriptors:
            os.close(descriptor)
