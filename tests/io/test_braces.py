import socket
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gristmill._io.braces import expand_braces
from gristmill._io.paths import find_files
from gristmill.errors import MissingFileError, PlanError, StoreError
from gristmill.options import StorageOptions


@pytest.mark.parametrize(
    "pattern",
    ["a", "a{0..3}b", "{08..11}", "{3..1}", "{a,b}-{0..1}.tar", "{000..002}", "x{,y}", "{9..11}"],
)
def test_braces_expand_as_in_bash(pattern: str):
    command = ["bash", "-c", f"printf '%s\\n' {pattern}"]
    expected = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert expand_braces(pattern) == expected.split("\n")[:-1]


@pytest.mark.parametrize("path", ["{}", "{a}", "a{1..b}", "{1..2", "{..}"])
def test_other_braces_are_characters(path: str):
    assert expand_braces(path) == [path]


@pytest.mark.parametrize("path", ["{0..99999999999}", "{0..9999}{0..9999}"])
def test_too_many_paths_are_an_error(path: str):
    with pytest.raises(PlanError, match=r"stand for more than 1,000,000 paths\.$"):
        expand_braces(path)


def test_all_files_of_a_range_must_exist(tmp_path: Path):
    for number in (9, 10):
        (tmp_path / f"{number:02}.tar").write_bytes(b"")
    found = find_files(tmp_path / "{09..10}.tar")
    assert [ref.name for ref in found] == ["09.tar", "10.tar"]
    with pytest.raises(MissingFileError, match=r"11\.tar"):
        find_files(tmp_path / "{09..11}.tar")


def test_a_file_with_braces_in_its_name_is_found(tmp_path: Path):
    (tmp_path / "{0..1}.tar").write_bytes(b"")
    assert [ref.name for ref in find_files(tmp_path / "{0..1}.tar")] == ["{0..1}.tar"]


def test_braces_may_hold_patterns(tmp_path: Path):
    for name in ("a1.x", "b1.x", "b2.x"):
        (tmp_path / name).write_bytes(b"")
    assert [ref.name for ref in find_files(f"{tmp_path}/{{b,a}}*.x")] == ["b1.x", "b2.x", "a1.x"]


def test_a_pattern_matches_the_files_that_an_http_server_lists(tmp_path: Path):
    for number in range(3):
        (tmp_path / f"train-{number}.tar").write_bytes(b"x" * number)
    (tmp_path / "other.tar").write_bytes(b"x")
    handler = partial(_QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            storage = StorageOptions(filesystem={"client_kwargs": {"trust_env": False}})
            found = find_files(f"http://127.0.0.1:{server.server_port}/train-*.tar", storage)
        finally:
            server.shutdown()
            thread.join()
    assert [(ref.name, ref.size) for ref in found] == [
        ("train-0.tar", 0),
        ("train-1.tar", 1),
        ("train-2.tar", 2),
    ]


class _QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder and lists it, as `python -m http.server` does."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_an_http_server_that_cannot_be_reached_is_not_said_to_list_nothing():
    storage = StorageOptions(num_retries=0, filesystem={"client_kwargs": {"trust_env": False}})
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StoreError, match="The store did not return"):
        find_files(f"http://127.0.0.1:{port}/train-*.tar", storage)


def test_a_pattern_of_http_is_an_error_that_suggests_braces(serve_http: Any):
    server = serve_http({"train-0.tar": b"a", "train-1.tar": b"b"})
    message = r"^An HTTP server cannot list its files, .*`train-\{0000\.\.0099\}\.tar`"
    with pytest.raises(MissingFileError, match=message):
        find_files(server.url("train-*.tar"), server.storage())
    found = find_files(server.url("train-{0..1}.tar"), server.storage())
    assert [ref.size for ref in found] == [1, 1]
