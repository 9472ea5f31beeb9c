from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill._io.folders.atomic_write import write_atomically


def test_a_file_is_replaced_once_all_is_written(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def buffers() -> Iterator[bytes]:
        yield b"ne"
        assert path.read_bytes() == b"old"
        yield b"w"

    write_atomically(path, buffers())
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, error: type[BaseException]
):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def buffers() -> Iterator[bytes]:
        yield b"ne"
        raise error

    with pytest.raises(error):
        write_atomically(path, buffers())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
