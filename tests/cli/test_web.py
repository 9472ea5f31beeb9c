"""`gristmill top --web`: a page on this machine only, that follows a running process."""

import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import gristmill as gm
from gristmill._api.monitoring.explain import explain_run
from gristmill._api.monitoring.monitor import Monitor
from gristmill._api.monitoring.report import ReportedRun
from gristmill._cli import web
from gristmill._cli.main import main
from gristmill._cli.web import LiveServer
from gristmill._metrics.timeline import Timeline
from tests.metrics.browser import PHONE_WIDTH, needs_browser, open_page, overflow_of

PROGRAM = """
import sys, time
import gristmill as gm

def decode(number):
    time.sleep(0.002)
    return number

loader = gm.load(range(1_000_000), num_epochs=1, batch_size=4, transformations=[decode])
loader.monitor()
iterator = iter(loader)
for _ in range(20):
    next(iterator)
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(20):
        next(iterator)
    print("done", flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def watched() -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.communicate("")


Serve = Callable[[int], LiveServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[LiveServer] = []

    def start(pid: int) -> LiveServer:
        servers.append(LiveServer(pid, port=0, interval_s=0.2))
        threading.Thread(target=servers[-1].serve, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def get(url: str, *, host: str = "") -> tuple[int, str]:
    """Return the status and the body of an answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=30)
    connection.request("GET", parts.path, headers={"Host": host or parts.netloc})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def advance(process: "subprocess.Popen[str]") -> None:
    """Let the process take 20 more batches."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("more\n")
    assert process.stdout.readline() == "done\n"


@needs_browser
def test_the_page_updates_itself(watched: "subprocess.Popen[str]", serve: Serve):
    with open_page(serve(watched.pid).url) as page:
        page.wait_for_selector("text=Map decode")
        assert "20 elements" in page.inner_text("main")
        advance(watched)
        page.wait_for_selector("text=40 elements")
        assert "Updated at" in page.inner_text("#note")
        assert page.locator(".tracks rect").count() > 0


@needs_browser
def test_the_page_fits_the_width_of_a_phone(watched: "subprocess.Popen[str]", serve: Serve):
    with open_page(serve(watched.pid).url, width=PHONE_WIDTH, scheme="dark") as page:
        page.wait_for_selector("text=Map decode")
        assert overflow_of(page) <= 0


@needs_browser
def test_the_page_remains_when_the_process_has_ended(
    watched: "subprocess.Popen[str]", serve: Serve
):
    with open_page(serve(watched.pid).url) as page:
        page.wait_for_selector("text=Map decode")
        watched.communicate("")
        page.wait_for_selector("text=cannot be watched")
        assert "Map decode" in page.inner_text("main")


@needs_browser
def test_hostile_strings_of_the_process_are_shown_and_not_run(serve: Serve):
    class Hostile(ReportedRun):
        def __repr__(self) -> str:
            return '<img src=x onerror="document.title=1"><script>document.title=2</script>\x1b[2J'

        def stats(self) -> gm.Stats:
            return gm.Stats(num_elements=1, elapsed_s=1.0, waited_s=1.0)

        def explain(self) -> Any:
            return explain_run(self.stats(), is_dataset=False)

        def _timelines(self) -> list[Timeline]:
            return []

    hostile, monitor = Hostile(), Monitor()
    monitor.watch(hostile)
    with open_page(serve(os.getpid()).url) as page:
        page.wait_for_selector("text=onerror")
        assert page.locator("main img, main script").count() == 0
        assert page.title() == f"gristmill top {os.getpid()}"
        assert "\\x1b[2J" in page.inner_text("main")


def test_only_the_address_with_the_token_and_the_right_name_is_answered(
    watched: "subprocess.Popen[str]", serve: Serve
):
    url = serve(watched.pid).url
    root = url.rsplit("/", 2)[0]

    assert get(url)[0] == 200
    assert json.loads(get(f"{url}state")[1])["note"] == ""
    for other in (f"{root}/", f"{root}/state", f"{root}/wrong/", f"{url}else", f"{url}../state"):
        assert get(other) == (404, "Not found.")
    # A page of another site whose name was made to resolve to this machine.
    assert get(url, host="evil.example:80") == (404, "Not found.")


def test_clients_that_send_nothing_or_are_gone_are_dropped(
    watched: "subprocess.Popen[str]",
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(web, "REQUEST_TIMEOUT_S", 0.1)
    url = serve(watched.pid).url
    address = ("127.0.0.1", urlsplit(url).port or 0)
    with socket.create_connection(address, timeout=30) as silent:
        assert silent.recv(1) == b""
    for _ in range(3):
        with socket.create_connection(address) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")  # and a reset
    assert get(url)[0] == 200
    assert capfd.readouterr().err == ""


def test_it_listens_on_this_machine_only(watched: "subprocess.Popen[str]", serve: Serve):
    server = serve(watched.pid)

    assert server.url.startswith("http://127.0.0.1:")
    assert server._server.server_address[0] == "127.0.0.1"


def test_the_policy_of_the_page_allows_its_own_script_only(
    watched: "subprocess.Popen[str]", serve: Serve
):
    page = get(serve(watched.pid).url)[1]

    policy = page.partition('Content-Security-Policy" content="')[2].partition('">')[0]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-")
    assert policy.endswith("'; connect-src 'self'")


def test_the_command_prints_the_address(watched: "subprocess.Popen[str]"):
    top = subprocess.Popen(
        [sys.executable, "-m", "gristmill", "top", "--web", str(watched.pid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert top.stdout is not None
    url = top.stdout.readline().strip()
    status, page = get(url)
    top.terminate()
    top.communicate()

    assert status == 200
    assert f"Process {watched.pid}" in page


def test_a_process_that_cannot_be_watched_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["top", "--web", "1"]) == 1
    assert "Process 1 cannot be watched" in capsys.readouterr().err


def test_a_port_that_is_in_use_is_an_error(
    watched: "subprocess.Popen[str]", serve: Serve, capsys: pytest.CaptureFixture[str]
):
    port = str(urlsplit(serve(watched.pid).url).port)

    assert main(["top", "--web", "--port", port, str(watched.pid)]) == 1
    assert f"`--port` {port} cannot be used: Address already in use" in capsys.readouterr().err
    assert main(["top", "--web", "--port", "70000"]) == 1
    assert "`--port` must be from 0 to 65535, got 70000" in capsys.readouterr().err
