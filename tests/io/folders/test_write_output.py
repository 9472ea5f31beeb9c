import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gristmill as gm
from gristmill._io.folders.write_output import write_output


def test_a_regular_file_is_replaced_with_nothing_left_beside_it(tmp_path: Path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_output(path, [b"n", b"ew"], name="report")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path):
    target, link = tmp_path / "run-7.html", tmp_path / "latest.html"
    target.write_text("old")
    link.symlink_to(target.name)
    write_output(link, [b"new"], name="report")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_link_to_a_file_that_does_not_exist_creates_it(tmp_path: Path):
    link = tmp_path / "latest.html"
    link.symlink_to("run-8.html")
    write_output(link, [b"new"], name="report")
    assert link.is_symlink()
    assert (tmp_path / "run-8.html").read_text() == "new"


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    loader = gm.load(range(4), num_epochs=1)
    loader.trace(pipe)
    reader.join()
    assert b'"traceEvents"' in received[0]
    assert pipe.is_fifo()


def test_a_device_stays_a_device(tmp_path: Path):
    node = tmp_path / "full"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 7))  # as /dev/full
        os.close(os.open(node, os.O_WRONLY))
    except PermissionError:
        pytest.skip("device nodes need privileges")
    with pytest.raises(gm.errors.PlanError, match="cannot be written: No space left on device"):
        gm.load(range(4), num_epochs=1).report(node)
    assert node.is_char_device()


@pytest.mark.parametrize("redirected", ["pipe", "file"])
def test_the_standard_output_gets_the_page_and_what_is_printed_after_it(
    tmp_path: Path, redirected: str
):
    code = (
        "import gristmill as gm\n"
        "gm.load(range(4), num_epochs=1).report('/dev/stdout')\n"
        "print('after it')"
    )
    command = [sys.executable, "-c", code]
    if redirected == "pipe":
        shown = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    else:
        with open(tmp_path / "page", "wb") as file:
            subprocess.run(command, stdout=file, check=True)
        shown = (tmp_path / "page").read_text()
    assert shown.startswith("<!doctype html>")
    assert shown.endswith("</html>\nafter it\n")


def test_a_folder_that_does_not_exist_is_not_created(tmp_path: Path):
    with pytest.raises(gm.errors.PlanError, match=r"the folder '.*rnus' does not"):
        write_output(tmp_path / "rnus" / "report.html", [b""], name="report")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300])
def test_a_name_that_the_system_does_not_have_is_in_the_error(path: str):
    loader = gm.load(range(4), num_epochs=1)
    for write in (loader.report, loader.trace, loader.preview(1).save):
        with pytest.raises(gm.errors.PlanError, match="cannot be written") as caught:
            write(path)
        assert repr(path) in str(caught.value)
