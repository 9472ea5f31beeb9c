"""`gristmill convert` with hostile names, links, plans and a full disk."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._cli.convert import Conversion, convert
from gristmill._cli.main import main
from gristmill._data.writers.column_names import check_file_names
from gristmill._data.writers.targets import ArrayRecordTarget
from gristmill.errors import BatchError, PlanError
from gristmill.sources import NumpySource, open_source

HOSTILE_NAMES = [
    "../../x",
    "/tmp/x",
    "a/b",
    "..",
    ".",
    ".hidden",
    "",
    "a\0b",
    "a\x1b[2J",
    "*",
    "a[0-9]",
    "~root",
    "-rf",
    "a-00000",
    "x" * 300,
    "a\\b",
    "\udcff",
]


def run(source: Path, target: Path, **options: Any) -> str:
    output = StringIO()
    convert(Conversion(source=str(source), target=str(target), **options), output=output)
    return output.getvalue()


def write_rows(path: Path, count: int = 100, name: str = "x") -> Path:
    path.write_text("".join(json.dumps({name: index}) + "\n" for index in range(count)))
    return path


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_column_name_that_is_not_a_file_name_writes_nothing(name: str, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.jsonl", name=name)
    (tmp_path / "inner").mkdir()
    before = files_below(tmp_path)
    with pytest.raises(BatchError, match="Rename the column"):
        run(source, tmp_path / "inner" / "out", to="npy")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("to", ["array_record", "parquet"])
@pytest.mark.parametrize("name", HOSTILE_NAMES[:6])
def test_other_formats_write_only_their_target_whatever_the_names(
    name: str, to: str, tmp_path: Path
) -> None:
    source = write_rows(tmp_path / "a.jsonl", name=name)
    run(source, tmp_path / "out", to=to)
    outside = [path for path in files_below(tmp_path) if not path.startswith(("out", "a.jsonl"))]
    assert outside == []
    assert {path.parent for path in (tmp_path / "out").rglob("*")} == {tmp_path / "out"}


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(BatchError, match="do not distinguish"):
        check_file_names(["Label", "label"])


def test_usual_names_are_accepted() -> None:
    check_file_names(["image", "top left", "größe", "a.b", "x_1", "a-b", "%"])


def test_a_link_in_place_of_the_partial_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "out.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(PlanError, match="is a link or a file"):
        run(write_rows(tmp_path / "a.jsonl"), tmp_path / "out")
    assert files_below(tmp_path / "victim") == []


def test_links_inside_the_partial_folder_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    partial = stop_in_the_sixth_shard(tmp_path)
    (partial / ".plan.json").symlink_to(victim)
    (partial / ".part").symlink_to(tmp_path)
    sorted(partial.glob("*.array_record"))[0].unlink()
    resume(tmp_path)
    (tmp_path / "features.json").symlink_to(victim)
    ArrayRecordTarget([{"x": 1}]).finish(tmp_path)
    assert victim.read_text() == "precious"
    assert (tmp_path / "a.jsonl").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of another user")
def test_a_partial_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    os.chown(tmp_path / "out.partial", 12345, 12345)
    with pytest.raises(PlanError, match="belongs to another user"):
        run(write_rows(tmp_path / "a.jsonl"), tmp_path / "out")


def stop_in_the_sixth_shard(folder: Path) -> Path:
    """Convert rows of which number 500 cannot be written, and return the partial folder."""
    rows = [json.dumps({"x": None if index == 500 else index}) for index in range(600)]
    (folder / "a.jsonl").write_text("\n".join(rows))
    resume(folder)
    return folder / "out.partial"


def resume(folder: Path) -> None:
    with pytest.raises(BatchError, match="record 500 is null"):
        run(folder / "a.jsonl", folder / "out", records_per_shard=100, to="array_record")


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "link"])
def test_a_shard_that_is_not_as_it_was_written_is_written_again(
    damage: str, tmp_path: Path
) -> None:
    partial = stop_in_the_sixth_shard(tmp_path)
    shards = sorted(partial.glob("*.array_record"))
    assert len(shards) == 5
    content = shards[2].read_bytes()
    shards[2].unlink()
    if damage == "empty":
        shards[2].touch()
    elif damage == "flipped":
        shards[2].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        shards[2].symlink_to(tmp_path / "elsewhere")
    times = [path.stat().st_mtime_ns for path in shards if path != shards[2]]
    resume(tmp_path)
    assert not shards[2].is_symlink()
    assert len(open_source(shards[2])) == 100
    assert [path.stat().st_mtime_ns for path in shards if path != shards[2]] == times


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "1",
        '{"done": 3}',
        '{"done": {"x": 1}}',
        "[" * 100_000,
        '{"done": {"0": {"../a.jsonl": [1, 2]}}}',
    ],
)
def test_a_hostile_plan_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "plan.json").write_text(content)
    with pytest.raises(PlanError):
        run(write_rows(tmp_path / "a.jsonl"), tmp_path / "out")


def test_the_plan_is_for_its_user_only(tmp_path: Path) -> None:
    partial = stop_in_the_sixth_shard(tmp_path)
    assert (partial / "plan.json").stat().st_mode & 0o077 == 0


def test_a_second_conversion_into_one_target_does_not_disturb_the_first(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.jsonl")
    partial = tmp_path / "out.partial"
    partial.mkdir()
    with locked(partial):
        with pytest.raises(PlanError, match="Another process is writing"):
            run(source, tmp_path / "out")
        assert partial.is_dir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


FULL_DISK = """
import resource, signal, sys
from gristmill._cli.main import main
import gristmill.sources, numpy
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--to", sys.argv[3]]))
"""


@pytest.mark.parametrize("to", ["npy", "parquet", "array_record"])
def test_a_full_disk_is_an_error_and_leaves_nothing(to: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((5000, 16), np.float32))
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "a.npy", tmp_path / "out", to],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended
    assert ended.stderr.startswith("gristmill: ")
    assert "Traceback" not in ended.stderr
    assert files_below(tmp_path) == ["a.npy"]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow mounting a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("to", ["npy", "parquet", "array_record"])
def test_a_small_file_system_that_is_full_is_an_error(
    to: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((50_000, 16), np.float32))
    with small_disk(tmp_path / "disk"):
        status = main(["convert", str(tmp_path / "a.npy"), str(tmp_path / "disk/out"), "--to", to])
        assert status == 1
        assert files_below(tmp_path / "disk") == []
    assert "Traceback" not in capfd.readouterr().err


def test_npy_files_have_the_bytes_that_numpy_saves(tmp_path: Path) -> None:
    array = np.arange(60, dtype=">f8").reshape(10, 3, 2)
    np.save(tmp_path / "a.npy", array)
    run(tmp_path / "a.npy", tmp_path / "out", to="npy", records_per_shard=10)
    written = next((tmp_path / "out").iterdir())
    assert np.array_equal(np.load(written), array)
    np.save(tmp_path / "b.npy", np.load(written))
    assert written.read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert len(NumpySource(written)) == 10
