"""Decoding of sound files to samples."""

import io
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from gristmill._base.checks import as_amount, as_bool
from gristmill._base.extras import load_extra
from gristmill._data.transforms.base import Map
from gristmill._data.transforms.encoded import bytes_of, check_key, fields_at
from gristmill.errors import CorruptFileError, PlanError
from gristmill.types import AnyArray, Element

_DTYPES = ("float32", "float64", "int16", "int32")


class Audio(NamedTuple):
    """A decoded sound.

    >>> sound = Audio(samples=np.zeros((800, 2)), rate=8000)
    >>> len(sound.samples) / sound.rate  # seconds
    0.1
    """

    samples: AnyArray
    """Of shape (frames, channels), or (frames,) if the channels are averaged."""
    rate: int
    """The number of frames per second."""


_PIECE_BYTES = 2**26
"""What is read at a time, because a small file may announce terabytes."""


@final
@dataclass(frozen=True)
class DecodeAudio(Map):
    """Decodes a sound file to an array of shape (frames, channels).

    It reads WAV, FLAC, Ogg, MP3 and the other formats of libsndfile, and accepts the values of
    Hugging Face's audio columns, `{"bytes": ..., "path": ...}`. The number of frames per second of
    the file is added to the element as `<key>_rate`. Nothing is resampled.

    >>> import io, soundfile
    >>> import numpy as np
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros((400, 2)), 8000, format="wav")
    >>> sound = DecodeAudio().map({"audio": file.getvalue(), "label": 3})
    >>> sound["audio"].shape, sound["audio_rate"]
    ((400, 2), 8000)

    Args:
        key: Key of the bytes in the element, a dict. `None` if the element is the bytes: it then
            becomes the array alone, without the rate.
        dtype: `"float32"` or `"float64"`, between -1 and 1, or `"int16"` or `"int32"`.
        mono: Whether to average the channels of floats, to an array of shape (frames,).
        start_s: Where to begin, in seconds. Nothing before it is decoded, if the format permits.
        duration_s: The length to decode, in seconds; by default to the end. A file that ends
            earlier is shorter.

    Raises:
        PlanError: If a value is out of bounds, or `mono` is set for integers.
        PlanTypeError: If an argument has the wrong type.
        MissingExtraError: When the first sound is decoded, if soundfile is not installed.
        CorruptFileError: When a sound is decoded, if it is damaged or not one that libsndfile
            reads.
    """

    key: str | None = "audio"
    dtype: str = "float32"
    mono: bool = False
    start_s: float = 0.0
    duration_s: float | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        if self.dtype not in _DTYPES:
            raise PlanError(f"`dtype` must be one of {', '.join(_DTYPES)}, got {self.dtype!r}.")
        if as_bool("mono", self.mono) and self.dtype.startswith("int"):
            raise PlanError(
                f'`mono` must be False with `dtype="{self.dtype}"`, because averages of integers '
                'would be rounded. Use `dtype="float32"`, or take one channel in a map.'
            )
        as_amount("start_s", self.start_s)
        if self.duration_s is not None:
            as_amount("duration_s", self.duration_s)

    def map(self, element: Element) -> Element:
        if self.key is None:
            return self.decode(element).samples
        fields = fields_at(element, self.key, "DecodeAudio")
        audio = self.decode(fields[self.key])
        return {**fields, self.key: audio.samples, f"{self.key}_rate": audio.rate}

    def decode(self, value: Element) -> Audio:
        """Return the samples of a sound file, and their number per second.

        Args:
            value: The bytes of the file, or a value of Hugging Face's audio columns.

        Raises:
            CorruptFileError: The file is damaged, or has another format.
        """
        data, path = bytes_of(value, "A sound", "DecodeAudio")
        library: Any = load_extra("soundfile", extra="audio", wanted_by="`DecodeAudio`")
        try:
            with library.SoundFile(io.BytesIO(data)) as file:
                rate = int(file.samplerate)
                start = min(round(self.start_s * rate), file.frames)
                count = file.frames - start
                if self.duration_s is not None:
                    count = min(count, round(self.duration_s * rate))
                file.seek(start)
                samples = _read(file, count, self.dtype)
        except library.LibsndfileError as error:
            raise CorruptFileError(
                f"The sound cannot be decoded: {str(error).rstrip('.')}. Replace the file, or "
                "skip such records with `SkipErrors`.",
                path=path,
            ) from error
        return Audio(samples.mean(axis=1) if self.mono else samples, rate)


def _read(file: Any, count: int, dtype: str) -> AnyArray:
    """Return the next `count` frames of a file; fewer if it announces more than it has."""
    at_once = max(1, _PIECE_BYTES // (file.channels * np.dtype(dtype).itemsize))
    chunks: list[AnyArray] = [file.read(min(count, at_once), dtype=dtype, always_2d=True)]
    while len(chunks[-1]) == at_once:
        count -= at_once
        chunks.append(file.read(min(count, at_once), dtype=dtype, always_2d=True))
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
