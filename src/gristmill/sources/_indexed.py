"""Files of records, each with an index that is made when it is first needed."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, final

from numpy.typing import NDArray

from gristmill._places import Places
from gristmill._progress import progress
from gristmill.files import File, OpenFiles, Paths, find_files, load_index, tell_files
from gristmill.options import StorageOptions


@final
class IndexedFiles:
    """The files that `paths` means, their indexes, and which record is in which.

    An index is a dict of arrays; the one named `counted_by` has an item for each record. Pickled,
    the indexes that are known travel along, so that nobody makes them again.
    """

    def __init__(
        self,
        paths: Paths,
        storage: StorageOptions | None,
        *,
        kind: str,
        build: Callable[[File], Mapping[str, NDArray[Any]]],
        counted_by: str,
    ) -> None:
        self.files = OpenFiles(find_files(paths, storage))
        self._kind = kind
        self._build = build
        self._counted_by = counted_by
        self._known: tuple[Places, list[dict[str, NDArray[Any]]]] | None = None
        self._lock = threading.Lock()

    @property
    def places(self) -> Places:
        """Where each record is."""
        return self._load()[0]

    def index(self, number: int) -> dict[str, NDArray[Any]]:
        """Give the index of one of the files."""
        return self._load()[1][number]

    def tell(self) -> str:
        """Name the files in a few words, the same wherever they lie."""
        return tell_files(self.files.refs)

    def _load(self) -> tuple[Places, list[dict[str, NDArray[Any]]]]:
        if self._known is None:
            with self._lock:  # one thread makes the indexes, the others wait for them
                if self._known is None:
                    self._known = self._make()
        return self._known

    def _make(self) -> tuple[Places, list[dict[str, NDArray[Any]]]]:
        indexes: list[dict[str, NDArray[Any]]] = []
        total = sum(ref.size for ref in self.files.refs)
        with progress("Indexing", total=total, unit="B") as advance:
            for number, ref in enumerate(self.files.refs):
                indexes.append(load_index(self.files[number], self._kind, self._build))
                advance(ref.size)
        return Places([len(index[self._counted_by]) for index in indexes]), indexes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())
