import pickle
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill.files import File
from gristmill.sources._indexed import IndexedFiles

built: list[str] = []


def index_bytes(file: File) -> dict[str, NDArray[np.int64]]:
    """Take each byte for a record."""
    built.append(Path(file.ref.path).name)
    return {"starts": np.arange(file.ref.size), "other": np.zeros(7, dtype=np.int64)}


def open_in(folder: Path, *contents: bytes) -> IndexedFiles:
    built.clear()
    for number, content in enumerate(contents):
        (folder / f"{number}.bin").write_bytes(content)
    return IndexedFiles(
        f"{folder}/*.bin", None, kind="bytes", build=index_bytes, counted_by="starts"
    )


def test_indexes_are_made_when_they_are_needed_and_once(tmp_path: Path):
    files = open_in(tmp_path, b"abc", b"", b"de")
    assert built == []
    assert len(files.places) == 5
    assert files.index(2)["starts"].tolist() == [0, 1]
    assert built == ["0.bin", "1.bin", "2.bin"]


def test_one_thread_makes_the_indexes_and_the_others_wait(tmp_path: Path):
    files = open_in(tmp_path, b"abc", b"de")
    start = threading.Barrier(8)
    counts: list[int] = []

    def work() -> None:
        start.wait()
        counts.append(len(files.places))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [5] * 8
    assert built == ["0.bin", "1.bin"]


def test_indexes_that_are_known_travel_along(tmp_path: Path):
    files = open_in(tmp_path, b"abc")
    fresh = pickle.dumps(files)
    assert len(files.places) == 3
    used = pickle.dumps(files)
    for path in tmp_path.glob("*-index"):
        path.unlink()
    assert len(pickle.loads(used).places) == 3
    assert built == ["0.bin"]
    assert len(pickle.loads(fresh).places) == 3
    assert built == ["0.bin", "0.bin"]
