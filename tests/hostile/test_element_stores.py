"""The folder of `cache`, crafted by others: nothing in it blocks, exhausts memory or is run."""

import json
import logging
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from gristmill._data.element_store.layout import layout_of
from gristmill._data.element_store.store import FILES
from gristmill._io.folders.cache_mark import mark_as_cache
from tests.hostile.test_crafted_files import bounded_memory

NUM_ELEMENTS = 20


def numbers(value: int) -> dict[str, np.ndarray]:
    return {"x": np.full(5, value)}


def texts(value: int) -> dict[str, object]:
    return {"x": np.full(5, value), "text": f"text {value}"}


def read(folder: Path, function: Callable[[int], object]) -> None:
    """Assert that the elements are right, whatever the folder contains."""
    found = list(gm.MapDataset.range(NUM_ELEMENTS).map(function).cache(folder))
    expected = [function(value) for value in range(NUM_ELEMENTS)]
    assert str(found) == str(expected)


NUMBERS = {"dict": [["x", {"array": ["<i8", [5]]}]]}


@pytest.mark.parametrize("function", [numbers, texts])
@pytest.mark.parametrize(
    "layout",
    [
        {"capacity": 10**12, "max_bytes": 10**15, "tree": NUMBERS},
        {"capacity": 20, "max_bytes": 10**9, "tree": {"array": ["<i8", [2**60]]}},
        {"capacity": 20, "max_bytes": 10**9, "tree": {"array": ["<i8", [2**50, 0]]}},
        {"capacity": 20, "max_bytes": 10**9, "tree": {"list": [{"int": []}] * 50_000}},
        {"capacity": 20, "max_bytes": 10**9, "tree": {"array": ["|O", []]}},
        {"capacity": 20, "max_bytes": 10**9, "tree": {"array": ["<m8[99999999999s]", [5]]}},
        {"capacity": -1, "max_bytes": 10**9, "tree": NUMBERS},
        {"capacity": 0, "max_bytes": 0, "tree": None},
        {"capacity": 20, "max_bytes": 10**9, "tree": [[]]},
        [],
    ],
)
def test_a_crafted_layout_changes_no_elements_in_bounded_memory(
    tmp_path: Path, layout: object, function: Callable[[int], object]
):
    read(tmp_path, function)
    encoded = json.dumps(layout).encode()
    next(tmp_path.rglob("layout")).write_bytes(b"%08x\n" % zlib.crc32(encoded) + encoded)
    with bounded_memory():
        read(tmp_path, function)
    read(tmp_path, function)


def test_an_element_of_very_many_leaves_has_no_layout():
    assert layout_of([1] * 1000) is not None
    assert layout_of([1] * 1001) is None


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.symlink_to(path.parents[2] / "precious")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", [as_pipe, as_link, Path.mkdir])
def test_pipes_and_links_are_not_opened(
    tmp_path: Path, name: str, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    folder = tmp_path / "cache"
    read(folder, numbers)
    path = next(folder.rglob(name))
    path.unlink()
    make(path)
    read(folder, numbers)
    assert precious.read_bytes() == b"precious"
    assert "cannot be opened" in caplog.text


def test_a_store_that_is_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    read(folder, numbers)
    store = next(path for path in folder.iterdir() if path.is_dir())
    store.rename(elsewhere)
    for name in FILES:
        (elsewhere / name).write_bytes(b"precious")
    store.symlink_to(elsewhere)
    read(folder, numbers)
    assert {(elsewhere / name).read_bytes() for name in FILES} == {b"precious"}
    assert "is a link" in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can create files of another user")
@pytest.mark.parametrize(("mode", "is_used"), [(0o777, False), (0o775, False), (0o755, True)])
def test_a_store_that_another_user_made_for_all_is_not_used(
    tmp_path: Path, mode: int, is_used: bool, caplog: pytest.LogCaptureFixture
):
    read(tmp_path, numbers)
    store = next(path for path in tmp_path.iterdir() if path.is_dir())
    os.chown(store, 54321, 54321)
    store.chmod(mode)
    read(tmp_path, numbers)
    assert ("another user" in caplog.text) != is_used


ON_A_FULL_DISK = """
import sys
import numpy as np, gristmill as gm
from gristmill import MapDataset

def numbers(value): return np.full(4000, value)
def texts(value): return {"text": "text" * 4000, "value": value}

for function in (numbers, texts):
    for _ in range(2):
        for value, found in enumerate(MapDataset.range(100).map(function).cache(sys.argv[1])):
            assert str(found) == str(function(value))
print("all elements")
"""


def test_on_a_full_disk_the_other_elements_are_computed(tmp_path: Path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)]
    if subprocess.run(["unshare", "-m", *mount], check=False, capture_output=True).returncode:
        pytest.skip("needs permission to mount a small tmpfs")
    command = ["sh", "-c", f'{" ".join(mount)} && exec "$0" -c "$1" {tmp_path}', sys.executable]
    ended = subprocess.run(
        ["unshare", "-m", *command, ON_A_FULL_DISK], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "all elements\n", ended.stderr
    assert "No space left on device" in ended.stderr


WITHOUT_LARGE_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
"""


@pytest.mark.parametrize("folder", ["sys.argv[1]", "None"])
def test_with_a_limit_of_the_size_of_files_the_other_elements_are_computed(
    tmp_path: Path, folder: str
):
    program = WITHOUT_LARGE_FILES + ON_A_FULL_DISK.replace("sys.argv[1]", folder)
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout == "all elements\n", ended.stderr
    assert "File too large" in ended.stderr


def test_a_mark_that_another_wrote_makes_no_folder_of_the_user_a_store(tmp_path: Path):
    # Only files with the names of a store are removed, and only in folders named like one.
    mark_as_cache(tmp_path)
    mine = [tmp_path / "thesis.tex", tmp_path / "results" / "layout", tmp_path / ("0" * 32) / "me"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(2**20))
    for count in (20, 21, 22):
        dataset = gm.MapDataset.range(count).map(numbers).cache(tmp_path, max_bytes=70_000)
        assert len(list(dataset)) == count
    assert all(path.stat().st_size == 2**20 for path in mine)


@pytest.fixture(autouse=True)
def _log_each_message(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("gristmill._base.log_once._seen", set())
    caplog.set_level(logging.WARNING)
