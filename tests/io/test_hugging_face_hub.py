"""Files of the Hugging Face Hub are read through `huggingface_hub`, here from a small server."""

import io
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill._io.stores import retry as _retry
from gristmill.errors import MissingFileError, StoreError
from gristmill.options import StorageOptions
from gristmill.sources import ParquetSource
from tests.io.servers import LOOPBACK, span_of


def table(first: int) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table({"x": range(first, first + 10)}), content)
    return content.getvalue()


COMMIT = "f" * 40
FILES = {"data/train-0.parquet": table(0), "data/train-1.parquet": table(10), "README.md": b"#"}


class Hub(BaseHTTPRequestHandler):
    """Answers what `huggingface_hub` asks about the repository `pets/cats`."""

    protocol_version = "HTTP/1.1"
    failures: ClassVar[list[str]] = []
    """Paths that fail once each."""

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path).path
        if path in self.failures:
            self.failures.remove(path)
            self.answer(b"busy", 503)
            return
        root = "/api/datasets/pets/cats"
        if path in (root, f"{root}/revision/main"):
            found = [{"rfilename": name} for name in FILES]
            body = {"_id": "1", "id": "pets/cats", "sha": COMMIT, "siblings": found}
            self.answer(json.dumps(body).encode(), Content_Type="application/json")
        elif path.startswith(f"{root}/tree/main"):
            folder = path.removeprefix(f"{root}/tree/main").strip("/")
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": f"{len(data)}"}
                for name, data in FILES.items()
                if name.rpartition("/")[0] == folder
            ]
            if not folder:
                entries.append({"type": "directory", "path": "data", "size": 0, "oid": "0"})
            self.answer(json.dumps(entries).encode(), Content_Type="application/json")
        else:
            data = FILES.get(path.removeprefix("/datasets/pets/cats/resolve/main/"))
            if data is None:
                self.answer(b"{}", 404)
                return
            span = span_of(self.headers.get("Range")) or (0, len(data))
            start, stop = span[0], min(span[1] or len(data), len(data))
            total = f"bytes {start}-{stop - 1}/{len(data)}"
            headers = {"ETag": '"1"', "X_Repo_Commit": COMMIT, "Content_Range": total}
            self.answer(data[start:stop], 206, **headers)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub() -> Iterator[StorageOptions]:
    server = ThreadingHTTPServer((LOOPBACK, 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://{LOOPBACK}:{server.server_address[1]}"
    try:
        yield StorageOptions(filesystem={"endpoint": endpoint})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("train-1.parquet", range(10, 20)),
        ("train-*.parquet", range(20)),
        ("train-{0..1}.parquet", range(20)),
    ],
)
def test_paths_and_patterns_are_read(hub: StorageOptions, path: str, expected: range):
    for repository in ("pets/cats", "pets/cats@main"):
        source = ParquetSource(f"hf://datasets/{repository}/data/{path}", storage=hub)
        assert [row["x"] for row in source.__getitems__(range(len(source)))] == list(expected)


def test_a_request_that_fails_is_repeated(hub: StorageOptions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_retry, "INITIAL_BACKOFF_S", 0.001)
    source = ParquetSource("hf://datasets/pets/cats/data/train-0.parquet", storage=hub)
    Hub.failures.append("/datasets/pets/cats/resolve/main/data/train-0.parquet")
    assert source[3] == {"x": 3}
    assert Hub.failures == []


def test_a_missing_file_is_an_error(hub: StorageOptions):
    with pytest.raises(MissingFileError, match="There is no such file"):
        ParquetSource("hf://datasets/pets/cats/data/none.parquet", storage=hub)


def test_a_hub_that_does_not_exist_fails_at_once():
    storage = StorageOptions(filesystem={"endpoint": "http://no-such-host.invalid"})
    with pytest.raises(StoreError, match="There is no host of this name"):
        ParquetSource("hf://datasets/pets/cats/data/train-0.parquet", storage=storage)
