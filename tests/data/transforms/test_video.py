import io
from typing import Any

import av
import numpy as np
import pytest

from gristmill import MapDataset, MultiprocessingOptions
from gristmill.errors import CorruptFileError, PlanError, PlanTypeError
from gristmill.transforms import DecodeVideo

COUNT = 20


@pytest.fixture(scope="module")
def video() -> bytes:
    """Return a video of moving stripes, most frames of which depend on earlier ones."""
    content = io.BytesIO()
    with av.open(content, "w", format="mp4") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(COUNT):
            pixels = np.zeros((48, 64, 3), np.uint8)
            pixels[:, 3 * number : 3 * number + 8] = 250
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return content.getvalue()


@pytest.fixture(scope="module")
def frames(video: bytes) -> Any:
    """Return all frames, by PyAV alone."""
    library: Any = av
    with library.open(io.BytesIO(video)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_the_frames_take_the_place_of_the_bytes(video: bytes, frames: Any):
    element = {"video": video, "label": 3}
    decoded = DecodeVideo().map(element)
    assert frames.shape == (COUNT, 48, 64, 3)
    np.testing.assert_array_equal(decoded["video"], frames)
    assert decoded["label"] == 3
    assert isinstance(element["video"], bytes), "the element itself is as it was"


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"start": 7}, slice(7, None)),
        ({"every": 3}, slice(None, None, 3)),
        ({"start": 5, "every": 4, "num_frames": 3}, slice(5, 17, 4)),
        ({"start": 19, "num_frames": 1}, slice(19, 20)),
    ],
)
def test_some_frames_equal_those_of_the_whole(
    video: bytes, frames: Any, arguments: dict[str, Any], numbers: slice
):
    value = {"bytes": video, "path": "a.mp4"}  # as of Hugging Face
    np.testing.assert_array_equal(DecodeVideo(None, **arguments).map(value), frames[numbers])


def test_grey_frames_have_no_axis_for_channels(video: bytes):
    assert DecodeVideo(None, mode="L", num_frames=2).map(video).shape == (2, 48, 64)


@pytest.mark.parametrize("arguments", [{"start": COUNT}, {"every": 10, "num_frames": 3}])
def test_a_video_with_fewer_frames_is_an_error(video: bytes, arguments: dict[str, Any]):
    with pytest.raises(PlanError, match=r"^A video must have enough frames: .* with 20\. Request"):
        DecodeVideo(None, **arguments).map(video)


def test_a_file_that_cannot_be_decoded_is_an_error(video: bytes):
    for data in (b"", b"some bytes", video[: len(video) // 2]):
        with pytest.raises(CorruptFileError, match=r"^The video cannot be decoded: "):
            DecodeVideo(None).map(data)


def test_what_is_not_bytes_is_an_error(frames: Any):
    with pytest.raises(PlanTypeError, match=r"^A video must be the bytes of a file, got ndarray\."):
        DecodeVideo(None).map(frames)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "RGBA"}, '`mode` must be "L" or "RGB"'),
        ({"every": 0}, "`every` must be at least 1"),
        ({"start": -1}, "`start` must be at least 0"),
        ({"num_frames": 0}, "`num_frames` must be at least 1"),
    ],
)
def test_bad_arguments_are_errors(arguments: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        DecodeVideo(**arguments)


def test_workers_decode_too(video: bytes, frames: Any):
    dataset = MapDataset.source([{"video": video}] * 4).map(DecodeVideo(num_frames=2))
    stream = dataset.to_iter_dataset().mp_prefetch(MultiprocessingOptions(2))
    for element in stream:
        np.testing.assert_array_equal(element["video"], frames[:2])
