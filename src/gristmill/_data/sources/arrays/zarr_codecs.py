"""Codecs of Zarr that decompress no more than a chunk may hold."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from gristmill._base.extras import load_extra
from gristmill._data.sources.arrays.bounded_decoding import find_bounded_decode

MaxBytes: TypeAlias = Callable[[tuple[int, ...]], int]
"""Returns what a chunk of some shape may have after any of its codecs."""

_INDEX_BYTES = 16
"""The size of an entry in the index of a shard."""


def bound_codecs(zarr: Any, array: Any, max_bytes: MaxBytes) -> Any:
    """Return the metadata of an array, with codecs that raise for chunks that are too large.

    Those of numcodecs decompress everything, before zarr compares the size with the shape.

    Args:
        zarr: The library.
        array: The array.
        max_bytes: What a chunk of a shape may have.
    """
    metadata = array.metadata
    limit = max_bytes(array.shards or array.chunks)
    if metadata.zarr_format == 3:
        return replace(metadata, codecs=_bound_all(zarr, metadata.codecs, limit, max_bytes))
    compressor, filters = metadata.compressor, metadata.filters
    return replace(
        metadata,
        compressor=None if compressor is None else _bound_numcodec(compressor, limit),
        filters=None if filters is None else [_bound_numcodec(one, limit) for one in filters],
    )


def _bound_all(zarr: Any, codecs: Any, limit: int, max_bytes: MaxBytes) -> list[Any]:
    """Return the codecs of an array in Zarr 3, of which none decodes to more than `limit`."""
    bounded: list[Any] = []
    for codec in codecs:
        if isinstance(codec, zarr.codecs.ShardingCodec):
            # Each chunk of a shard has at least one item, and so do the entries of its index.
            inner, index = max_bytes(codec.chunk_shape), _INDEX_BYTES * limit
            bounded.append(
                replace(
                    codec,
                    codecs=_bound_all(zarr, codec.codecs, inner, max_bytes),
                    index_codecs=_bound_all(zarr, codec.index_codecs, index, max_bytes),
                )
            )
        elif isinstance(codec, zarr.abc.codec.BytesBytesCodec):
            bounded.append(_bound_codec(zarr, codec, limit))
        else:
            bounded.append(codec)
    return bounded


def _bound_codec(zarr: Any, codec: Any, limit: int) -> Any:
    """Return a codec of Zarr 3 that raises for more than `limit` bytes."""
    described: Mapping[str, Any] = codec.to_dict()
    name = str(described["name"]).removeprefix("numcodecs.")
    decode = find_bounded_decode({**described.get("configuration", {}), "id": name}, limit)
    if decode is None:
        return codec

    class _BoundedCodec(zarr.abc.codec.BytesBytesCodec):
        is_fixed_size = codec.is_fixed_size

        def compute_encoded_size(self, *args: Any) -> int:
            return codec.compute_encoded_size(*args)

        def to_dict(self) -> Mapping[str, Any]:
            return described

        async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            decoded = await asyncio.to_thread(decode, chunk_data.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(decoded)

    return _BoundedCodec()


def _bound_numcodec(codec: Any, limit: int) -> Any:
    """Return a codec of Zarr 2 that raises for more than `limit` bytes."""
    numcodecs: Any = load_extra("numcodecs", extra="zarr", wanted_by="`ZarrSource`")
    decode_bounded = find_bounded_decode(codec.get_config(), limit)
    if decode_bounded is None:
        return codec

    class _BoundedCodec(numcodecs.abc.Codec):
        codec_id = codec.codec_id

        def encode(self, buf: Any) -> Any:
            return codec.encode(buf)

        def decode(self, buf: Any, out: Any = None) -> Any:
            return numcodecs.compat.ndarray_copy(
                decode_bounded(numcodecs.compat.ensure_bytes(buf)), out
            )

        def get_config(self) -> Any:
            return codec.get_config()

    return _BoundedCodec()
