import io
import pickle
import wave
from typing import Any

import numpy as np
import pytest
import soundfile

from gristmill import MapDataset, MultiprocessingOptions
from gristmill.errors import CorruptFileError, PlanError, PlanTypeError
from gristmill.transforms import DecodeAudio

RATE = 8000
SAMPLES = np.random.default_rng(0).integers(-(2**15), 2**15, (1000, 2), dtype=np.int16)


def as_wav(samples: Any = SAMPLES) -> bytes:
    """Return a WAV file, written without libsndfile."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return content.getvalue()


def encode(form: str, **options: Any) -> bytes:
    content = io.BytesIO()
    soundfile.write(content, SAMPLES, RATE, format=form, **options)
    return content.getvalue()


def test_the_samples_take_the_place_of_the_bytes_and_the_rate_is_added():
    element = {"audio": as_wav(), "label": 3}
    decoded = DecodeAudio(dtype="int16").map(element)
    np.testing.assert_array_equal(decoded.pop("audio"), SAMPLES)
    assert decoded == {"label": 3, "audio_rate": RATE}
    assert isinstance(element["audio"], bytes), "the element itself is as it was"


def test_floats_are_between_minus_one_and_one():
    sound = DecodeAudio().decode(as_wav()).samples
    assert sound.dtype == np.float32
    np.testing.assert_array_equal(sound, SAMPLES / np.float32(2**15))
    mono = DecodeAudio(mono=True, dtype="float64").decode(as_wav()).samples
    np.testing.assert_allclose(mono, SAMPLES.mean(axis=1) / 2**15)


@pytest.mark.parametrize(("form", "is_exact"), [("FLAC", True), ("OGG", False), ("MP3", False)])
def test_compressed_formats_are_decoded(form: str, is_exact: bool):
    data = encode(form)
    expected, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    found = DecodeAudio("x").map({"x": {"bytes": data, "path": "a.ogg"}})  # as of Hugging Face
    np.testing.assert_array_equal(found["x"], expected)
    assert found["x_rate"] == rate
    assert np.array_equal(expected, SAMPLES / np.float32(2**15)) == is_exact


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_a_section_is_that_of_the_whole(form: str):
    data = encode(form)
    found = DecodeAudio(None, "int16", start_s=0.05, duration_s=0.025).map(data)
    np.testing.assert_array_equal(found, SAMPLES[400:600])
    to_the_end = DecodeAudio(None, "int16", start_s=0.12, duration_s=9).map(data)
    np.testing.assert_array_equal(to_the_end, SAMPLES[960:])
    assert DecodeAudio(None, start_s=9).map(data).shape == (0, 2)


@pytest.mark.parametrize("data", [b"", b"some bytes", as_wav()[:30]])
def test_a_file_that_cannot_be_decoded_is_an_error(data: bytes):
    with pytest.raises(CorruptFileError, match=r"^The sound cannot be decoded: .* `SkipErrors`"):
        DecodeAudio(None).map(data)


def test_what_is_not_bytes_is_an_error():
    with pytest.raises(PlanTypeError, match=r"^A sound must be the bytes of a file, got ndarray\."):
        DecodeAudio(None).map(SAMPLES)
    with pytest.raises(PlanError, match="must be a key of the element, got 'audio'"):
        DecodeAudio().map({"sound": as_wav()})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int8"}, "`dtype` must be one of"),
        ({"mono": True, "dtype": "int16"}, "`mono` must be False with"),
        ({"start_s": -1}, "`start_s`"),
        ({"duration_s": -1}, "`duration_s`"),
    ],
)
def test_bad_arguments_are_errors(arguments: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        DecodeAudio(**arguments)


def test_workers_decode_too():
    decode = DecodeAudio(dtype="int16")
    assert pickle.loads(pickle.dumps(decode)) == decode
    dataset = MapDataset.source([{"audio": as_wav(SAMPLES[: 100 + n])} for n in range(6)])
    stream = dataset.map(decode).to_iter_dataset().mp_prefetch(MultiprocessingOptions(2))
    assert [len(element["audio"]) for element in stream] == [100 + n for n in range(6)]
