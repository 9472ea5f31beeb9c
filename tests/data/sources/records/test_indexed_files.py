import pickle
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._io.file import File

built: list[str] = []


def index_bytes(file: File) -> dict[str, NDArray[np.int64]]:
    """Index each byte as a record."""
    built.append(Path(file.ref.path).name)
    return {"starts": np.arange(file.ref.size), "other": np.zeros(7, dtype=np.int64)}


def open_in(folder: Path, *contents: bytes) -> IndexedFiles:
    built.clear()
    for number, content in enumerate(contents):
        (folder / f"{number}.bin").write_bytes(content)
    return IndexedFiles(f"{folder}/*.bin", None, kind="bytes", build=index_bytes, count_by="starts")


def test_indexes_are_built_once_and_on_first_use(tmp_path: Path):
    files = open_in(tmp_path, b"abc", b"", b"de")
    assert built == []
    assert len(files.locator) == 5
    assert files.index(2)["starts"].tolist() == [0, 1]
    assert built == ["0.bin", "1.bin", "2.bin"]


def test_one_thread_builds_the_indexes_while_the_others_wait(tmp_path: Path):
    files = open_in(tmp_path, b"abc", b"de")
    start = threading.Barrier(8)
    counts: list[int] = []

    def work() -> None:
        start.wait()
        counts.append(len(files.locator))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [5] * 8
    assert built == ["0.bin", "1.bin"]


def test_loaded_indexes_are_part_of_a_pickled_copy(tmp_path: Path):
    files = open_in(tmp_path, b"abc")
    fresh = pickle.dumps(files)
    assert len(files.locator) == 3
    used = pickle.dumps(files)
    for path in tmp_path.glob("*-index"):
        path.unlink()
    assert len(pickle.loads(used).locator) == 3
    assert built == ["0.bin"]
    assert len(pickle.loads(fresh).locator) == 3
    assert built == ["0.bin", "0.bin"]
