"""Records in shared memory are unpickled only if no other user can have written them."""

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill.errors import GristmillError, SourceError
from gristmill.sources import SharedMemoryDataSource
from tests.io.programs import run

NAME = f"gristmill-hostile-{os.getpid()}"
PATH = Path("/dev/shm", NAME)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    PATH.unlink(missing_ok=True)


class Exploit:
    def __reduce__(self) -> tuple[object, ...]:
        return os.putenv, ("HACKED", "1")


def forge(tmp_path: Path) -> bytes:
    """Return the bytes of a valid source with a record that runs code when it is unpickled."""
    with SharedMemoryDataSource([Exploit()], name=NAME):
        return PATH.read_bytes()


def by_another_user(path: Path) -> None:
    os.chown(path, 54321, 54321)


def writable_by_others(path: Path) -> None:
    path.chmod(0o622)


def writable_by_the_group(path: Path) -> None:
    path.chmod(0o620)


OPENINGS = [writable_by_others, writable_by_the_group]
if os.getuid() == 0:
    OPENINGS.append(by_another_user)


@pytest.mark.parametrize("change", OPENINGS)
def test_memory_that_another_user_can_write_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
):
    data = forge(tmp_path)
    PATH.write_bytes(data)
    PATH.chmod(0o600)
    assert len(SharedMemoryDataSource(name=NAME)) == 1
    change(PATH)
    with pytest.raises(SourceError, match="can be written by another user"):
        SharedMemoryDataSource(name=NAME)


def test_a_link_is_refused(tmp_path: Path):
    (tmp_path / "file").write_bytes(forge(tmp_path))
    PATH.symlink_to(tmp_path / "file")
    with pytest.raises(SourceError):
        SharedMemoryDataSource(name=NAME)


def test_a_pipe_does_not_block():
    os.mkfifo(PATH)
    with pytest.raises(SourceError):
        SharedMemoryDataSource(name=NAME)


@pytest.mark.parametrize("name", ["/proc/self/../../tmp/x", "/proc/1/root/tmp/x", "../x", "a/b"])
def test_a_name_cannot_lead_elsewhere(name: str):
    with pytest.raises(GristmillError):
        SharedMemoryDataSource(name=name)


def test_anonymous_memory_is_attached_to_by_the_same_user_only():
    source = SharedMemoryDataSource([1, 2, 3])
    assert list(pickle.loads(pickle.dumps(source))) == [1, 2, 3]
    attach = "import pickle, sys\nprint(list(pickle.load(sys.stdin.buffer)))"
    assert run(attach, stdin=pickle.dumps(source)) == b"[1, 2, 3]\n"


@pytest.mark.parametrize("length", [0, 2**40, 2**64 - 1])
def test_a_number_of_records_that_does_not_fit_is_an_error(tmp_path: Path, length: int):
    data = forge(tmp_path)
    trailer = length.to_bytes(8, "little") + data[-24:]
    PATH.write_bytes(data[:-32] + trailer)
    PATH.chmod(0o600)
    with pytest.raises((SourceError, IndexError)):
        SharedMemoryDataSource(name=NAME)[0]
