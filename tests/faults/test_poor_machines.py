"""Machines without /proc, HOME, disk space or descriptors, and data of another user."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65_534

READ_WITH_WORKERS = """
import gristmill

def add_one(element):
    return element + 1

loader = gristmill.DataLoader(
    data_source=range(200),
    sampler=gristmill.IndexSampler(200, num_epochs=1, seed=0),
    operations=[add_one, gristmill.Batch(10)],
    worker_count=2,
)
with iter(loader) as iterator:
    assert [int(x) for batch in iterator for x in batch] == list(range(1, 201))
    print(iterator.stats().worker_start)
"""

READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from gristmill.errors import ForbiddenFileError
from gristmill.sources import CsvSource

warm, folder = map(Path, sys.argv[1:])
source = CsvSource(warm / "a.csv")  # imports all that is needed
print(len(source), source[7]["a"])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(len(CsvSource(folder / "a.csv")), CsvSource(folder / "a.csv")[7]["a"])
print(sorted(path.name for path in folder.iterdir()))
os.chdir("/")
try:
    len(CsvSource(folder / "secret.csv"))
except ForbiddenFileError as error:
    print("refused:", error)
"""


def run(
    *command: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ) if environment is None else environment
    variables = {**variables, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )


def shell(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("sh", "-c", text, "sh", *arguments)


def in_namespace(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with mounts of its own, or skip the test if that is not allowed."""
    if run("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt").returncode:
        pytest.skip("this machine allows no private mounts")
    return run("unshare", "-m", "sh", "-c", text, "sh", *arguments)


def write_csv(folder: Path, name: str = "a.csv") -> None:
    (folder / name).write_text("a,b\n" + "".join(f"{n},{n}\n" for n in range(3000)))


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs `unshare`")
def test_without_proc_workers_are_new_interpreters():
    ended = in_namespace(
        'mount -t tmpfs tmpfs /proc && "$1" -c "$2"', sys.executable, READ_WITH_WORKERS
    )

    assert ended.stdout == "spawned: the fork server needs /proc, to see the threads of modules\n"
    assert ended.stderr == ""


def test_without_any_environment_variable_workers_run():
    ended = run(sys.executable, "-c", READ_WITH_WORKERS, environment={})

    assert (ended.stdout, ended.stderr) == ("forked\n", "")


def test_with_few_descriptors_workers_run():
    ended = shell('ulimit -n 40; "$1" -c "$2"', sys.executable, READ_WITH_WORKERS)

    assert (ended.stdout, ended.stderr) == ("forked\n", "")


def test_with_too_few_descriptors_it_is_an_error_at_once():
    ended = shell('ulimit -n 16; "$1" -c "$2"', sys.executable, READ_WITH_WORKERS)

    assert ended.returncode == 1
    assert "[Errno 24] Too many open files" in ended.stderr.splitlines()[-1]
    assert "gristmill.errors.WorkerError" in ended.stderr


def test_a_limit_of_file_sizes_is_an_error_not_a_signal():
    ended = shell('ulimit -f 1; "$1" -c "$2"', sys.executable, READ_WITH_WORKERS)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "gristmill.errors.WorkerError: The pipeline could not be copied into shared memory: "
        "[Errno 27] File too large."
    )


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Yield a folder that other users can read but not write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_reads_a_folder_that_it_cannot_write_to(public_folder: Path, tmp_path: Path):
    for folder in (public_folder, tmp_path):
        write_csv(folder)
    write_csv(public_folder, "secret.csv")
    (public_folder / "secret.csv").chmod(0o600)

    ended = run(sys.executable, "-c", READ_AS_NOBODY, str(tmp_path), str(public_folder))

    read, again, names, refused = ended.stdout.splitlines()
    assert read == again == "3000 7"
    assert names == "['a.csv', 'secret.csv']"
    assert refused.startswith("refused: ")
    assert str(public_folder / "secret.csv") in refused
    assert ended.stderr == ""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs `unshare`")
def test_a_full_disk_takes_no_index_and_no_conversion(tmp_path: Path):
    write_csv(tmp_path)
    (tmp_path / "full").mkdir()
    script = """
        mount -t tmpfs -o size=64k tmpfs "$2/full"
        cp "$2/a.csv" "$2/full"
        head -c 100000 /dev/zero > "$2/full/fill" 2> /dev/null
        cd "$2/full"
        export XDG_CACHE_HOME="$2/full/cache"
        "$1" -c "$3"
        "$1" -m gristmill convert a.csv out --to npy
        echo "status $?"
        ls
    """

    read = (
        "from gristmill.sources import CsvSource; s = CsvSource('a.csv'); print(len(s), s[7]['a'])"
    )

    ended = in_namespace(script, sys.executable, str(tmp_path), read)

    assert ended.stdout.splitlines()[:2] == ["3000 7", "status 1"]
    assert "out" not in ended.stdout.splitlines()
    assert "No space left on device" in ended.stderr
