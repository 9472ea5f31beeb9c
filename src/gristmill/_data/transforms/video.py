"""Decoding of video files to frames."""

import io
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.checks import as_int
from gristmill._base.extras import load_extra
from gristmill._data.transforms.base import Map
from gristmill._data.transforms.encoded import bytes_of, check_key, decode_at_key
from gristmill.errors import CorruptFileError, PlanError
from gristmill.types import Element

_FORMATS = {"L": "gray", "RGB": "rgb24"}

_NO_OTHER_FILES = {"protocol_whitelist": "none"}
"""Some formats are lists of other files or servers, which FFmpeg would open: a playlist, an SDP."""


@final
@dataclass(frozen=True)
class DecodeVideo(Map):
    """Decodes frames of a video file to a `uint8` array of shape (frames, height, width, 3).

    With mode `"L"` (grey) there is no axis for channels. It reads what FFmpeg reads, through PyAV,
    and also accepts the values of Hugging Face's video columns, `{"bytes": ..., "path": ...}`.
    Frames are counted from the beginning, and those before the first one are decoded but not
    converted, so that a frame is the same whichever others are requested.

    >>> import av, io
    >>> file = io.BytesIO()
    >>> with av.open(file, "w", format="mp4") as container:
    ...     stream = container.add_stream("mpeg4", rate=10)
    ...     stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
    ...     for number in range(8):
    ...         pixels = np.full((16, 32, 3), number * 20, np.uint8)
    ...         container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels)))
    ...     container.mux(stream.encode())
    >>> DecodeVideo(every=2).map({"video": file.getvalue()})["video"].shape
    (4, 16, 32, 3)

    Args:
        key: Key of the bytes in the element, a dict; `None` if the element is the bytes.
        mode: The colour mode to convert to: `"RGB"` or `"L"`.
        start: The number of the first frame.
        every: The distance between two frames: 1 for all, 2 for every second one.
        num_frames: The number of frames; by default all to the end. A shorter video is an error.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If `key` or a number has the wrong type.
        MissingExtraError: When the first video is decoded, if PyAV is not installed.
        CorruptFileError: When a video is decoded, if it is damaged or not one that FFmpeg reads.
    """

    key: str | None = "video"
    mode: str = "RGB"
    start: int = 0
    every: int = 1
    num_frames: int | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        if self.mode not in _FORMATS:
            raise PlanError(f'`mode` must be "L" or "RGB", got {self.mode!r}.')
        as_int("start", self.start)
        as_int("every", self.every, minimum=1)
        if self.num_frames is not None:
            as_int("num_frames", self.num_frames, minimum=1)

    def map(self, element: Element) -> Element:
        return decode_at_key(element, self.key, "DecodeVideo", self.decode)

    def decode(self, value: Element) -> NDArray[np.uint8]:
        """Return frames of a video file.

        Args:
            value: The bytes of the file, or a value of Hugging Face's video columns.

        Raises:
            CorruptFileError: The file is damaged, or has another format.
            PlanError: It has fewer frames than are requested.
        """
        data, path = bytes_of(value, "A video", "DecodeVideo")
        library: Any = load_extra("av", extra="video", wanted_by="`DecodeVideo`")
        frames: list[NDArray[np.uint8]] = []
        number = -1
        try:
            with library.open(
                io.BytesIO(data),
                options=_NO_OTHER_FILES,
                metadata_errors="replace",  # titles that are not UTF-8 are not read anyway
            ) as container:
                for number, frame in enumerate(container.decode(video=0)):
                    if number < self.start or (number - self.start) % self.every:
                        continue
                    frames.append(_pixels(frame, self.mode))
                    if len(frames) == self.num_frames:
                        break
        except (library.FFmpegError, IndexError) as error:  # the latter if there is no video
            raise CorruptFileError(
                f"The video cannot be decoded: {str(error).rstrip('.')}. Replace the file, or "
                "skip such records with `SkipErrors`.",
                path=path,
            ) from error
        if not frames or len(frames) < (self.num_frames or 0):
            wanted = "one" if self.num_frames is None else f"{self.num_frames}, every {self.every}"
            raise PlanError(
                f"A video must have enough frames: {wanted} from frame {self.start} on, got one "
                f"with {number + 1}. Request fewer, or skip such records with `SkipErrors`."
            )
        return np.stack(frames)


def _pixels(frame: Any, mode: str) -> NDArray[np.uint8]:
    return cast("NDArray[np.uint8]", frame.to_ndarray(format=_FORMATS[mode]))
