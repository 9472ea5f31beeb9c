"""Crafted HDF5 files and Zarr groups: short chunks, bombs, huge headers and pickles."""

import json
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numcodecs
import numpy as np
import pytest
import zarr
import zstandard
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from gristmill._data.sources.arrays.hdf5_chunks import ChunkReader
from gristmill.errors import ChangedFileError, CorruptFileError, FormatError
from gristmill.sources import Hdf5Source, ZarrSource
from tests.hostile.test_crafted_files import bounded_memory, zeros

SHAPE = (100, 100)


def write_chunk(path: Path, data: bytes, mask: int = 0, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", SHAPE, "f4", chunks=SHAPE, **options)
        dataset.id.write_direct_chunk((0, 0), data, filter_mask=mask)


@pytest.mark.parametrize(
    ("data", "mask", "options"),
    [
        (zlib.compress(b"short"), 0, {"compression": "gzip"}),
        (zlib.compress(b"short"), 0, {"compression": "gzip", "shuffle": True}),
        (zlib.compress(bytes(40_001)), 0, {"compression": "gzip"}),
        (zlib.compress(bytes(40_000))[:-20], 0, {"compression": "gzip"}),
        (b"short", 1, {"compression": "gzip"}),
        (b"short", 0, {"shuffle": True}),
        (b"s", 1, {"fletcher32": True}),
        (zlib.compress(b"short"), 2, {"compression": "gzip", "fletcher32": True}),
    ],
)
def test_a_chunk_of_hdf5_of_another_size_is_an_error(
    tmp_path: Path, data: bytes, mask: int, options: dict[str, Any]
):
    # libhdf5 itself returns the memory behind the chunk, or crashes.
    write_chunk(tmp_path / "a.h5", data, mask, **options)
    with pytest.raises(CorruptFileError, match=r"items 0 to 100 of '/x' cannot be read"):
        Hdf5Source(tmp_path / "a.h5")[0]


def test_a_chunk_of_hdf5_that_holds_more_than_it_announces_is_not_unpacked(tmp_path: Path):
    bomb = b"\x78\x9c" + zeros(300 * 2**20)
    write_chunk(tmp_path / "a.h5", bomb + bytes(4), compression="gzip")
    with bounded_memory(), pytest.raises(CorruptFileError, match=r"instead of 40,000"):
        Hdf5Source(tmp_path / "a.h5")[0]


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((10**9,), (10**9,)), ((10, 10**11), None), ((10, 2**40), (1, 2**29)), ((2**60, 2**61), None)],
)
def test_nothing_is_allocated_for_a_header_of_hdf5_that_announces_too_much(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...] | None
):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape, "f4" if shape[0] < 2**60 else "u1", chunks=chunks)
    with bounded_memory(), pytest.raises(FormatError, match=r"A chunk of 'x' takes [\d,]+ bytes"):
        Hdf5Source(tmp_path / "a.h5")[0]


def test_a_record_of_hdf5_may_be_as_large_as_its_file(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("gristmill._data.sources.arrays.chunked._MAX_UNIT_BYTES", 1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(5000.0).reshape(1, 5000)
    assert Hdf5Source(tmp_path / "a.h5")[0]["x"][-1] == 4999


@pytest.mark.parametrize("kind", ["f4", ">i8", "u1", "S5", "bool"])
@pytest.mark.parametrize(("shape", "chunks"), [((23,), (5,)), ((23, 7), (4, 3)), ((5, 4, 3), None)])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"compression": "lzf"}])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("fletcher32", [False, True])
def test_chunks_that_are_decoded_here_are_those_of_libhdf5(
    tmp_path: Path,
    kind: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...] | None,
    options: dict[str, Any],
    shuffle: bool,
    fletcher32: bool,
):
    items = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        written: Any = file.create_dataset(
            "x", shape, kind, chunks=chunks, shuffle=shuffle, fletcher32=fletcher32, **options
        )
        written[: shape[0] // 2] = items[: shape[0] // 2]  # the last chunks are absent
    with h5py.File(tmp_path / "a.h5") as file:
        expected: Any = file["x"][...]  # pyright: ignore[reportIndexIssue]
    read = np.array([record["x"] for record in Hdf5Source(tmp_path / "a.h5")])
    np.testing.assert_array_equal(read, expected)


def test_a_file_of_hdf5_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(100), chunks=(10,), compression="gzip")
    source = Hdf5Source(path)
    read = ChunkReader.read

    def change_and_read(reader: ChunkReader, start: int, stop: int) -> Any:
        os.utime(path, ns=(1, 1))
        return read(reader, start, stop)

    monkeypatch.setattr(ChunkReader, "read", change_and_read)
    with pytest.raises(ChangedFileError):
        source[50]


# Zarr


class Harmful:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("filters", "compressor"),
    [
        (["vlen-utf8", "pickle"], None),
        (["vlen-utf8"], "pickle"),
        (["pickle"], None),
        (None, "pickle"),
        (["vlen-bytes", "pickle"], None),
    ],
)
def test_pickles_in_zarr_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    filters: list[str] | None,
    compressor: str | None,
):
    # Older versions of numcodecs load pickles without being asked.
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    array = tmp_path / "a" / "x"
    array.mkdir(parents=True)
    (tmp_path / "a" / ".zgroup").write_text('{"zarr_format": 2}')
    metadata = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "fill_value": "" if filters != ["vlen-bytes", "pickle"] else None,
        "order": "C",
        "filters": filters and [{"id": name} for name in filters],
        "compressor": compressor and {"id": compressor},
    }
    (array / ".zarray").write_text(json.dumps(metadata))
    (array / "0").write_bytes(pickle.dumps([Harmful(tmp_path / "harm"), "|O", [1]]))
    with pytest.raises(FormatError):
        ZarrSource(tmp_path / "a")[0]
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("num_bytes", [0, 5, 15, 16, 100, -2, -1])
@pytest.mark.parametrize("version", [2, 3])
def test_a_truncated_chunk_of_blosc_is_an_error(tmp_path: Path, num_bytes: int, version: Any):
    # numcodecs itself returns the memory behind the chunk.
    zarr2 = version == 2
    codec: Any = numcodecs.Blosc() if zarr2 else BloscCodec()
    items = np.arange(4000, dtype="f4").reshape(1000, 4)
    zarr.create_array(
        tmp_path / "a", data=items, chunks=(1000, 4), compressors=codec, zarr_format=version
    )
    np.testing.assert_array_equal(ZarrSource(tmp_path / "a")[999]["array"], items[999])
    chunk = tmp_path / "a" / ("0.0" if zarr2 else "c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:num_bytes])
    with pytest.raises(CorruptFileError, match=r"items 0 to 1,000 of 'array' cannot be read"):
        ZarrSource(tmp_path / "a")[0]


ZARR2_CODECS: dict[str, Any] = {
    "zlib": numcodecs.Zlib(),
    "gzip": numcodecs.GZip(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "zstd": numcodecs.Zstd(),
    "lz4": numcodecs.LZ4(),
    "blosc": numcodecs.Blosc(),
    "zlib-filter": numcodecs.Zlib(),
}
ZARR3_CODECS: dict[str, Any] = {"gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec()}
ZARR_CODECS = [
    *((2, name, False) for name in ZARR2_CODECS),
    *((3, name, is_sharded) for name in ZARR3_CODECS for is_sharded in (False, True)),
]


def make_zarr(folder: Path, version: int, codec: str, is_sharded: bool, items: Any) -> Path:
    """Write an array of chunks of 100 items, and return the path of its second chunk."""
    options: dict[str, Any] = {"compressors": None}
    if version == 3:
        options = {"compressors": ZARR3_CODECS[codec]}
        options |= {"shards": (200,)} if is_sharded else {}
    elif codec.endswith("-filter"):
        options["filters"] = [ZARR2_CODECS[codec]]
    else:
        options["compressors"] = ZARR2_CODECS[codec]
    zarr.create_array(folder, data=items, chunks=(100,), zarr_format=version, **options)  # pyright: ignore[reportArgumentType]
    number = 0 if is_sharded else 1
    return folder / (f"c/{number}" if version == 3 else f"{number}")


def bombs(codec: str) -> list[bytes]:
    """Return chunks of 300 MiB of zeros."""
    size, data = 300 * 2**20, bytes(300 * 2**20)
    match codec.removesuffix("-filter"):
        case "gzip":
            packed = zlib.compressobj(wbits=31)
            return [packed.compress(data) + packed.flush()]
        case "zstd":
            stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
            return [
                zstandard.ZstdCompressor().compress(data),
                stream.compress(data) + stream.flush(),
                zstandard.ZstdCompressor().compress(b"a") * 2
                + zstandard.ZstdCompressor().compress(data),
            ]
        case "zlib":
            return [b"\x78\x9c" + zeros(size)]
        case name:
            return [bytes(ZARR2_CODECS[name].encode(data))]


@pytest.mark.parametrize(("version", "codec", "is_sharded"), ZARR_CODECS)
def test_a_chunk_of_zarr_that_holds_more_than_its_shape_is_not_unpacked(
    tmp_path: Path, version: int, codec: str, is_sharded: bool
):
    chunk = make_zarr(tmp_path / "a", version, codec, is_sharded, np.arange(400.0))
    for bomb in bombs(codec):
        if is_sharded:  # the index follows the chunks: an offset and a length for each
            index = struct.pack("<4Q", 0, len(bomb), 0, len(bomb))
            bomb += index + struct.pack("<I", google_crc32c.value(index))
        chunk.write_bytes(bomb)
        start = 0 if is_sharded else 100
        message = rf"items {start} to {start + 100} of 'array' cannot be read: "
        with bounded_memory(), pytest.raises(CorruptFileError, match=message):
            ZarrSource(tmp_path / "a")[start]


@pytest.mark.parametrize(("version", "codec", "is_sharded"), ZARR_CODECS)
def test_chunks_that_are_decoded_here_are_those_of_zarr(
    tmp_path: Path, version: int, codec: str, is_sharded: bool
):
    items = np.random.default_rng(0).integers(0, 9, 400)
    chunk = make_zarr(tmp_path / "a", version, codec, is_sharded, items)
    read = [record["array"] for record in ZarrSource(tmp_path / "a")]
    np.testing.assert_array_equal(read, items)
    whole = chunk.read_bytes()
    for size in {0, 1, 4, 5, 9, len(whole) // 2, len(whole) - 1}:
        chunk.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError):
            ZarrSource(tmp_path / "a")[199]


def test_frames_of_zstandard_that_state_no_size_are_read(tmp_path: Path):
    chunk = make_zarr(tmp_path / "a", 2, "zstd", is_sharded=False, items=np.arange(400.0))
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    chunk.write_bytes(stream.compress(np.arange(5.0, 105.0).tobytes()) + stream.flush())
    assert ZarrSource(tmp_path / "a")[100]["array"] == 5


@pytest.mark.parametrize("kind", ["pipe", "device", "long"])
def test_a_file_of_zarr_without_an_end_is_not_read(tmp_path: Path, kind: str):
    chunk = make_zarr(tmp_path / "a", 2, "zlib", is_sharded=False, items=np.arange(400.0))
    chunk.unlink()
    if kind == "pipe":
        os.mkfifo(chunk)
    elif kind == "device":
        chunk.symlink_to("/dev/zero")
    else:
        chunk.touch()
        os.truncate(chunk, 2**34)
    with bounded_memory(), pytest.raises(CorruptFileError, match="'1' is not a regular file of at"):
        ZarrSource(tmp_path / "a")[100]


def test_nothing_is_allocated_for_a_header_of_zarr_that_announces_too_much(tmp_path: Path):
    zarr.create_array(tmp_path / "a", shape=(10**12,), chunks=(10**12,), dtype="u1")
    with bounded_memory(), pytest.raises(FormatError, match=r"A chunk of 'array' takes [\d,]+"):
        ZarrSource(tmp_path / "a")[0]
