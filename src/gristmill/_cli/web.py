"""`gristmill top --web`: a page about another process on this machine, which updates itself."""

import hmac
import json
import secrets
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, final

from gristmill._cli.processes import read_runs
from gristmill._metrics.pages.live_page import live_page, state_html
from gristmill.errors import GristmillError, PlanError

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


REQUEST_TIMEOUT_S = 10.0
"""Other users can connect, too. They must not keep connections and threads for longer."""


@final
class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that is gone; a traceback would let other users write to the terminal


@final
class LiveServer:
    """Serves the page on the loopback interface only, under an address that cannot be guessed.

    Other users of the machine can connect to the port, and so can scripts of web pages. They do
    not know the token, which is part of each path. A page whose host name was made to resolve to
    this machine is refused because of the name.

    Args:
        pid: The process.
        port: The port; 0 for one that is free.
        interval_s: How often the page updates.

    Raises:
        PlanError: The port is not available.
    """

    def __init__(self, pid: int, *, port: int, interval_s: float) -> None:
        self._pid = pid
        self._interval_s = interval_s
        self._token = secrets.token_urlsafe(16)
        try:
            self._server = _QuietServer(("127.0.0.1", port), _handler_of(self._answer))
        except OSError as error:
            raise PlanError(
                f"`port` {port} cannot be used: {error.strerror}. Pass another one, or 0."
            ) from None
        self._host = f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{self._host}/{self._token}/"

    def serve(self) -> None:
        """Answer requests until `close` or Ctrl-C."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, host: str, path: str) -> tuple[str, str] | None:
        """Return the type and the content of an answer; `None` if there is nothing."""
        token, _, name = path.removeprefix("/").partition("/")
        is_ours = hmac.compare_digest(token.encode(), self._token.encode())
        if host not in (self._host, self._host.replace("127.0.0.1", "localhost")) or not is_ours:
            return None
        if name == "":
            return "text/html", live_page(self._pid, interval_s=self._interval_s)
        if name == "state":
            return "application/json", json.dumps(self._state())
        return None

    def _state(self) -> dict[str, str]:
        try:
            runs = read_runs(self._pid)
        except GristmillError as error:
            return {"html": "", "note": str(error)}
        return {"html": state_html([run.report(self._pid) for run in runs]), "note": ""}


def serve_page(pid: int, *, port: int, interval_s: float) -> None:
    """Print the address of the page, and serve it until Ctrl-C."""
    server = LiveServer(pid, port=port, interval_s=interval_s)
    sys.stdout.write(f"{server.url}\nOnly this address shows the page. Ctrl-C ends it.\n")
    sys.stdout.flush()
    server.serve()


def _handler_of(
    answer: Callable[[str, str], tuple[str, str] | None],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET requests, and logs nothing."""

        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            found = answer(self.headers.get("Host", ""), self.path)
            kind, content = ("text/plain", "Not found.") if found is None else found
            data = content.encode("utf-8", "backslashreplace")
            self.send_response(404 if found is None else 200)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
