"""Mapped files that change while they are read: the batch is right, or there is an error."""

import os
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest

from gristmill import MapDataset, MultiprocessingOptions
from gristmill._base.trees.columns import Columns
from gristmill.errors import ChangedFileError
from gristmill.sources import ArrowSource, HuggingFaceSource, IdxSource, NumpySource
from gristmill.types import Element

COUNT = 5000


def make_npy(folder: Path) -> tuple[Path, Element]:
    np.save(folder / "x.npy", np.arange(COUNT, dtype=np.int64))
    return folder / "x.npy", NumpySource(folder / "x.npy")


def make_npz(folder: Path) -> tuple[Path, Element]:
    np.savez(folder / "x.npz", x=np.arange(COUNT, dtype=np.int64))
    return folder / "x.npz", NumpySource(folder / "x.npz")


def make_idx(folder: Path) -> tuple[Path, Element]:
    header = bytes([0, 0, 8, 1]) + COUNT.to_bytes(4, "big")
    (folder / "x.idx").write_bytes(header + bytes(COUNT))
    return folder / "x.idx", IdxSource(folder / "x.idx")


def make_arrow(folder: Path) -> tuple[Path, Element]:
    table = pa.table({"x": np.arange(COUNT, dtype=np.int64)})
    with pa.ipc.new_file(folder / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "x.arrow", ArrowSource(folder / "x.arrow")


def make_strings(folder: Path) -> tuple[Path, Element]:
    table = pa.table({"x": ["some text"] * COUNT})
    with pa.ipc.new_file(folder / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "x.arrow", ArrowSource(folder / "x.arrow")


def make_hugging_face(folder: Path) -> tuple[Path, Element]:
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"x": list(range(COUNT))}).save_to_disk(folder / "saved")
    path = next((folder / "saved").glob("*.arrow"))
    return path, HuggingFaceSource(folder / "saved")


MAKERS = [make_npy, make_npz, make_idx, make_arrow, make_strings, make_hugging_face]


def rewrite(path: Path) -> None:
    """Overwrite the second half of a file in place, without changing its size."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\x07" * (size // 4))
    os.utime(path, ns=(0, 0))  # another time than before, however coarse the clock is


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def rewrite_with_the_date_set_back(path: Path) -> None:
    before = path.stat()
    rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    wait_for_another_inode_time(path, before)


def wait_for_another_inode_time(path: Path, before: os.stat_result) -> None:
    """Change the permissions until the coarse clock of the file system has advanced."""
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.chmod(before.st_mode)


@pytest.mark.parametrize("change", [rewrite, rewrite_with_the_date_set_back, truncate])
@pytest.mark.parametrize("make", MAKERS)
def test_records_of_a_changed_file_are_an_error(
    make: Callable[[Path], tuple[Path, Element]], change: Callable[[Path], None], tmp_path: Path
) -> None:
    path, source = make(tmp_path)
    assert len(source) == COUNT
    _ = source[0], source[COUNT - 1]  # mapped by now
    change(path)
    for read in (
        lambda: source[COUNT // 2],
        lambda: source.__getitems__(range(COUNT // 2, COUNT)),
        lambda: source.__getitems__([COUNT - 1, 3, COUNT // 2] * 10),
    ):
        with pytest.raises(ChangedFileError) as caught:
            read()
        assert caught.value.path == str(path)


@pytest.mark.parametrize("change", [rewrite, rewrite_with_the_date_set_back, truncate])
@pytest.mark.parametrize("make", [make_npy, make_npz, make_arrow, make_hugging_face])
def test_a_batch_gathered_from_a_file_that_changed_since_it_was_requested_is_an_error(
    make: Callable[[Path], tuple[Path, Element]], change: Callable[[Path], None], tmp_path: Path
) -> None:
    path, source = make(tmp_path)
    columns = source.read_columns(range(COUNT // 2, COUNT))
    assert isinstance(columns, Columns)
    change(path)
    with pytest.raises(ChangedFileError):
        columns[5:9].gather()


def test_a_file_that_changes_during_a_gather_is_an_error(tmp_path: Path) -> None:
    path, source = make_npy(tmp_path)

    def allocate(shape: tuple[int, ...], dtype: np.dtype[np.int64]) -> Element:
        rewrite(path)  # after the check that comes before the copy
        return np.empty(shape, dtype)

    with pytest.raises(ChangedFileError):
        source.read_columns(range(COUNT)).gather(allocate)


def test_a_worker_reports_a_file_that_was_truncated(tmp_path: Path) -> None:
    """A new worker, too: after a SIGBUS the block is computed again, and names the file."""
    path, source = make_npy(tmp_path)
    dataset = MapDataset.source(source).batch(10).to_iter_dataset()
    batches = iter(dataset.mp_prefetch(MultiprocessingOptions(num_workers=1)))
    assert next(batches)[0] == 0
    truncate(path)
    with pytest.raises(ChangedFileError) as caught:
        for _ in batches:
            pass
    assert caught.value.path == str(path)


def test_a_batch_does_not_change_with_its_file(tmp_path: Path) -> None:
    path, source = make_npy(tmp_path)
    batch = source.read_columns(range(COUNT // 2, COUNT)).gather()
    rewrite(path)
    assert np.array_equal(batch, np.arange(COUNT // 2, COUNT))


@pytest.mark.parametrize("make", MAKERS)
def test_a_file_with_other_permissions_links_or_names_is_still_read(
    make: Callable[[Path], tuple[Path, Element]], tmp_path: Path
) -> None:
    path, source = make(tmp_path)
    expected = repr(source.__getitems__(range(COUNT)))
    for change in (
        lambda: path.chmod(0o400),
        lambda: os.link(path, tmp_path / "link"),
        lambda: (tmp_path / "link").unlink(),
        lambda: path.rename(tmp_path / "other"),
        lambda: (tmp_path / "other").rename(path),
    ):
        before = os.stat(next(one for one in (path, tmp_path / "other") if one.exists()))
        change()
        now = path if path.exists() else tmp_path / "other"
        wait_for_another_inode_time(now, before)
        assert repr(source.__getitems__(range(COUNT))) == expected
