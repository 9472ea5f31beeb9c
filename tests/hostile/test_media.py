"""Sounds, images and videos of strangers open no other file, connect to nothing and run nothing."""

import io
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import datasets
import numpy as np
import PIL.Image
import pytest
import soundfile

import gristmill as gm
from gristmill.errors import CorruptFileError, FormatError, GristmillError
from gristmill.transforms import DecodeAudio, DecodeImage, DecodeVideo
from tests.hostile.mutations import mutate


def video(form: str = "mp4", codec: str = "mpeg4", **metadata: str) -> bytes:
    content = io.BytesIO()
    with av.open(content, "w", format=form) as container:
        container.metadata.update(metadata)
        stream: Any = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for number in range(4):
            pixels = np.full((16, 32, 3), 60 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels)))
        container.mux(stream.encode())
    return content.getvalue()


def playlist(address: str) -> bytes:
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\n"
    return f"{head}{address}\n#EXT-X-ENDLIST\n".encode()


def concatenation(address: str) -> bytes:
    return f"ffconcat version 1.0\nfile {address}\n".encode()


@pytest.mark.parametrize("make", [playlist, concatenation])
@pytest.mark.parametrize("name", ["secret.mp4", "secret.ts", "file:secret.ts", "{}/secret.ts"])
def test_a_video_that_is_a_list_of_files_reads_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], bytes], name: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.mp4").write_bytes(video())
    (tmp_path / "secret.ts").write_bytes(video("mpegts", "mpeg2video"))
    with pytest.raises(CorruptFileError):
        DecodeVideo(key=None).decode(make(name.format(tmp_path)))


@pytest.mark.parametrize("make", [playlist, concatenation])
def test_a_video_that_is_a_list_of_addresses_connects_to_none_of_them(make: Callable[[str], bytes]):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        for address in (f"http://127.0.0.1:{port}/a.ts", f"tcp://127.0.0.1:{port}"):
            with pytest.raises(CorruptFileError):
                DecodeVideo(key=None).decode(make(address))
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_video_that_describes_a_session_opens_no_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = ["v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=x", "c=IN IP4 127.0.0.1", "t=0 0"]
    lines += [f"m=video {port} RTP/AVP 96", "a=rtpmap:96 H264/90000", ""]
    with pytest.raises(CorruptFileError, match="Invalid data"):  # not that no packets came for 20 s
        DecodeVideo(key=None).decode("\n".join(lines).encode())


def test_a_video_with_titles_that_are_not_utf_8_is_decoded():
    data = video("matroska", title="a title of 18 bytes")
    assert data.count(b"a title of 18 bytes") == 1
    changed = data.replace(b"a title of 18 bytes", b"a title of \xff\xfe bytes")
    expected = DecodeVideo(key=None).decode(data)
    np.testing.assert_array_equal(DecodeVideo(key=None).decode(changed), expected)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that exists once Ghostscript was run."""
    ran, program = tmp_path / "ran", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return ran


def encode_image(form: str) -> bytes:
    content = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(content, form)
    return content.getvalue()


def test_an_image_that_is_a_program_is_not_run(runs: Path):
    with pytest.raises(FormatError, match="a program, which Ghostscript would run"):
        DecodeImage(key=None).decode(encode_image("eps"))
    rows = [{"image": {"bytes": encode_image("eps"), "path": None}}]
    features = datasets.Features({"image": datasets.Image()})
    source: Any = gm.from_huggingface(datasets.Dataset.from_list(rows, features=features))
    with pytest.raises(FormatError, match="a program, which Ghostscript would run"):
        source[0]
    assert not runs.exists()


@pytest.mark.parametrize("num_frames", [2**28, 2**36 - 1])
def test_a_sound_that_announces_more_than_it_has_takes_little_memory(num_frames: int):
    data = bytearray(encode_sound("flac"))
    numbers = slice(18, 26)  # of which the lower 36 bits are the number of frames
    kept = int.from_bytes(data[numbers], "big") >> 36 << 36
    data[numbers] = (kept | num_frames).to_bytes(8, "big")
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        assert file.frames == num_frames
        allocated: list[int] = []
        empty = file._create_empty_array

        def count(frames: int, *arguments: Any) -> Any:
            allocated.append(frames)
            return empty(frames, *arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                soundfile.SoundFile, "_create_empty_array", lambda self, *given: count(*given)
            )
            with pytest.raises(CorruptFileError):
                DecodeAudio(key=None).decode(bytes(data))
    assert 0 < max(allocated) * 2 * 4 <= 2**26


def encode_sound(form: str, count: int = 4000) -> bytes:
    content = io.BytesIO()
    wave = np.sin(np.arange(count) / 20)
    soundfile.write(content, np.stack([wave, wave], axis=1), 8000, format=form)
    return content.getvalue()


def test_a_long_sound_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch):
    data = encode_sound("wav")
    whole = DecodeAudio(key=None).decode(data).samples
    for num_bytes in (8, 800, 8 * 4000, 8 * 4000 - 8):
        monkeypatch.setattr("gristmill._data.transforms.audio._PIECE_BYTES", num_bytes)
        np.testing.assert_array_equal(DecodeAudio(key=None).decode(data).samples, whole)


SAMPLES = {
    "mp4": (DecodeVideo(key=None), video()),
    "matroska": (DecodeVideo(key=None), video("matroska", title="a title")),
    "mpegts": (DecodeVideo(key=None), video("mpegts", "mpeg2video")),
    **{form: (DecodeAudio(key=None), encode_sound(form, 40)) for form in ("wav", "flac", "ogg")},
    **{form: (DecodeImage(key=None), encode_image(form)) for form in ("gif", "tiff", "webp")},
}


@pytest.mark.filterwarnings("ignore")  # of Pillow about odd headers
@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_media_are_decoded_or_refused(name: str):
    decoder, data = SAMPLES[name]
    rng = random.Random(0)
    num_refused = 0
    for _ in range(int(os.environ.get("HOSTILE_INPUTS", "60"))):
        try:
            decoder.map(mutate(data, rng))
        except GristmillError:
            num_refused += 1
    assert num_refused
