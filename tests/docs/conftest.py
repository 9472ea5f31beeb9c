"""What a page needs besides its programs."""

import gc
import io
import tarfile
import warnings
from collections.abc import Iterator

import pytest

from tests.io.servers import LOOPBACK, moto_server, s3_server


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep libraries from asking a server for a newer version."""
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")


@pytest.fixture
def files_left_open() -> Iterator[None]:
    """Accept that a library, such as webdataset, leaves files to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve `s3://bucket` from this machine, to programs that name no server."""
    shards = {f"train-{number:03}.tar": _shard(number) for number in range(4)}
    with moto_server() as s3, s3_server(s3, shards) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{LOOPBACK}:{store.server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("NO_PROXY", LOOPBACK)
        yield


def _shard(number: int) -> bytes:
    """Return a tar file of sixteen records, each with 64 bytes and a label of its own."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for label in range(16 * number, 16 * number + 16):
            for extension, data in [("bin", bytes([label] * 64)), ("cls", b"%d" % label)]:
                member = tarfile.TarInfo(f"{label:05}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return content.getvalue()
