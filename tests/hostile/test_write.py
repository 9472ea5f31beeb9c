"""`write` writes nothing outside its folder, and what it has written is complete."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import GristmillError
from gristmill.sources import ParquetSource

FORMATS = ["array_record", "npy", "parquet", "tar", "tfrecord"]


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "/tmp/gristmill-escaped",
        "a/b",
        "..",
        ".",
        "a\0b",
        "plan.json",
        "\x1b[31m",
        "é" * 200,
    ],
)
def test_no_name_of_a_column_leads_out_of_the_folder(tmp_path: Path, name: str, format: str):
    folder = tmp_path / "inner" / "written"
    folder.parent.mkdir()
    source: Any = gm.MapDataset.source([{name: np.arange(3)}, {name: np.arange(3)}])
    with contextlib.suppress(GristmillError):
        gm.write(source, folder, format=format)
    inside = {path for path in everything(tmp_path) if not path.startswith("inner/written")}
    assert inside <= {"inner"}
    assert not Path("/tmp/gristmill-escaped").exists()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["written.partial", "written.partial/.part"])
def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, place: str, format: str):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").write_bytes(b"precious")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(elsewhere)
    source: Any = gm.MapDataset.range(20).map(lambda value: {"x": value})
    with contextlib.suppress(GristmillError):
        gm.write(source, tmp_path / "written", format=format)
    assert everything(elsewhere) == {"thesis.tex"}
    assert (elsewhere / "thesis.tex").read_bytes() == b"precious"


PROGRAM = """
import os, signal, sys
import gristmill as gm

def slow(value):
    if value == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": value}

gm.write(gm.MapDataset.range(100).map(slow), sys.argv[1], format="parquet", records_per_shard=7)
"""


def test_a_folder_of_a_killed_program_is_completed_by_the_next_of_two(tmp_path: Path):
    path = tmp_path / "written"

    def run(killed_at: int) -> "subprocess.Popen[bytes]":
        # The value is an argument, so the fingerprint of the function stays the same.
        command = [sys.executable, "-c", PROGRAM, str(path), str(killed_at)]
        return subprocess.Popen(command, stderr=subprocess.PIPE)

    for number in (50, 90):
        ended = run(number)
        ended.communicate()
        assert ended.returncode == -signal.SIGKILL
        assert not path.exists()
    both = [run(-1), run(-1)]
    errors = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], errors
    assert [record["x"] for record in ParquetSource(f"{path}/*.parquet")] == list(range(100))
    assert not path.with_name("written.partial").exists()


ON_A_SMALL_DISK = """
import sys
import numpy as np
import gristmill as gm

def large(value):
    return {"x": np.random.default_rng(value).random(1000)}

try:
    gm.write(gm.MapDataset.range(100).map(large), sys.argv[1] + "/written", format=sys.argv[2])
except OSError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_is_an_error(tmp_path: Path, format: str):
    mount = f"mount -t tmpfs -o size=300k tmpfs {tmp_path}"
    if subprocess.run(
        ["unshare", "-m", *mount.split()], check=False, capture_output=True
    ).returncode:
        pytest.skip("needs permission to mount a small tmpfs")
    command = f'{mount} && exec "$0" -c "$1" {tmp_path} {format}'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, sys.executable, ON_A_SMALL_DISK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": "/tmp"},
    )
    assert ended.stdout.startswith("refused: "), ended.stderr
    assert "No space left on device" in ended.stdout
