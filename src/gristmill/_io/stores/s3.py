"""Read objects from S3, and check the headers of each response before its body is read.

s3fs reads the body of any response to its end, however long it is. This module uses the client of
s3fs, and reads no more bytes than were requested.
"""

from collections.abc import Callable
from typing import Any, final

from gristmill._io.file import FileRef
from gristmill._io.local import changed_error
from gristmill._io.stores.http import NoRangesError, check_range, is_tag
from gristmill._io.stores.http_session import too_large
from gristmill.errors import StoreError

_PIECE_BYTES = 1 << 20
"""Bytes taken from a body at a time."""


def is_s3(filesystem: object) -> bool:
    """Return whether a filesystem of fsspec is that of s3fs."""
    return type(filesystem).__module__.partition(".")[0] == "s3fs"


@final
class S3Client:
    """Requests to S3 with the client of an `S3FileSystem` of s3fs."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    async def read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of an object.

        Raises:
            NoRangesError: If the store can only return the whole object.
            StoreError: If the response is not what was requested.
            ChangedFileError: If the object has changed.
        """
        if start == stop:
            return b""
        chunks: list[bytes] = []
        await self._read(ref, start, stop, chunks.append, Range=f"bytes={start}-{stop - 1}")
        return b"".join(chunks)

    async def read_whole(self, ref: FileRef, write: Callable[[bytes], None]) -> None:
        """Read all bytes of an object in one request, and pass them to `write` as they arrive."""
        await self._read(ref, 0, ref.size, write)

    async def read_object(self, address: str, max_bytes: int) -> bytes:
        """Return all bytes of an object whose size is not known, in one request.

        Raises:
            StoreError: If it has more than `max_bytes`.
        """
        response = await self._get(address)
        body, chunks, num_read = response["Body"], list[bytes](), 0
        try:
            length: int | None = response.get("ContentLength")
            if length is not None and length > max_bytes:
                raise too_large(length, max_bytes)
            while chunk := await body.read(_PIECE_BYTES):
                num_read += len(chunk)
                if num_read > max_bytes:
                    raise too_large(num_read, max_bytes)
                chunks.append(chunk)
            if length not in (None, num_read):
                raise StoreError(f"got {num_read:,} bytes of the {length:,} announced")
        finally:
            body.close()
        return b"".join(chunks)

    async def _get(self, address: str, **options: str) -> dict[str, Any]:
        filesystem = self._filesystem
        bucket, key, version = filesystem.split_path(address)
        if version:
            options["VersionId"] = version
        call = getattr(filesystem, "_call_s3")  # noqa: B009 - the method that `call_s3` waits for
        return await call("get_object", Bucket=bucket, Key=key, **options)

    async def _read(
        self, ref: FileRef, start: int, stop: int, write: Callable[[bytes], None], **options: str
    ) -> None:
        response = await self._get(ref.path, **options)
        body, size = response["Body"], stop - start
        try:
            _check(response, ref, start, stop)
            num_read = 0
            while chunk := await body.read(_PIECE_BYTES):
                num_read += len(chunk)
                if num_read > size:
                    raise StoreError(f"the store sent more than the {size:,} bytes requested")
                write(chunk)
            if num_read < size:
                raise StoreError(f"got {num_read:,} bytes of the {size:,} requested")
        finally:
            body.close()  # ends the connection if there is more to read


def _check(response: dict[str, Any], ref: FileRef, start: int, stop: int) -> None:
    """Check that a response has the range that was requested, of the same version."""
    tag: object = response.get("ETag")
    if tag is not None and is_tag(ref.version) and repr(tag) != ref.version:
        raise changed_error(ref)
    length: object = response.get("ContentLength")
    sent_range: str | None = response.get("ContentRange")
    if sent_range is not None:
        check_range(sent_range, ref, start, stop)
    elif (start, stop) != (0, ref.size):
        if length in (None, ref.size):
            raise NoRangesError("The store ignores byte ranges.", path=ref.path)
        raise StoreError(f"the store sent {length} bytes without their range")
    if length is not None and length != stop - start:
        raise StoreError(f"the store announces {length} bytes of the {stop - start:,} requested")
