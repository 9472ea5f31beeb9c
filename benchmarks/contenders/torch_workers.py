"""PyTorch's DataLoader with worker processes and NumPy batches."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from benchmarks import _jpeg, _large, _waits
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource, RepeatedSource
from benchmarks._samples import Samples
from benchmarks.rows import stragglers as stragglers_row
from benchmarks.rows import waiting_reads as waiting_row

Start = Callable[[], Iterator[Any]]
TUNED = {"persistent_workers": True, "prefetch_factor": 4}


def as_numpy(batch: Any) -> Any:
    """Return tensors, alone or in a sequence, as arrays that share their memory."""
    return batch.numpy() if isinstance(batch, torch.Tensor) else tuple(map(as_numpy, batch))


def collate_as_in_jax_docs(records: list[Any]) -> Any:
    """Use PyTorch's default collate, and convert to arrays in the worker, which pickles them."""
    return as_numpy(torch_data.default_collate(records))


def loader(
    source: Any, batch_size: int, *, worker_count: int, jax_docs: bool = False, **options: Any
) -> Start:
    """Return a loader that converts to arrays in the consumer, without cost, or in its workers."""
    if jax_docs:
        options["collate_fn"] = collate_as_in_jax_docs
    made = torch_data.DataLoader(source, batch_size=batch_size, num_workers=worker_count, **options)
    return (lambda: iter(made)) if jax_docs else (lambda: map(as_numpy, made))


def mnist(data: Mnist, *, repeated: bool = True, **options: Any) -> Start:
    """Read MNIST by record, repeated or once."""
    source = RepeatedSource(data) if repeated else RecordSource(data)
    return loader(source, BATCH_SIZE, **options)


Decode = Callable[[bytes, int, int, int], Any]
"""Returns the crop of a JPEG file at top and left, flipped or not."""


class Augmented(torch_data.Dataset[Any]):
    """JPEG files, with a crop from PyTorch's random generator, as in torchvision."""

    def __init__(self, source: _jpeg.JpegSource, decode: Decode) -> None:
        self._source = source
        self._decode = decode

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        jpeg, label = self._source[index]
        top = int(torch.randint(_jpeg.HEIGHT - _jpeg.CROP + 1, ()))
        left = int(torch.randint(_jpeg.WIDTH - _jpeg.CROP + 1, ()))
        flip = int(torch.randint(2, ()))
        return self._decode(jpeg, top, left, flip), label, np.array([top, left, flip])


def decode_with_pillow(jpeg: bytes, top: int, left: int, flip: int) -> Any:
    """Decode as torchvision's datasets do by default."""
    from benchmarks import _pillow

    return _pillow.decode_crop_flip(jpeg, top, left, flip)


def decode_with_simplejpeg(jpeg: bytes, top: int, left: int, flip: int) -> Any:
    """Decode with the package that `DecodeImage` uses, and flip with PyTorch."""
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(jpeg)[top : top + _jpeg.CROP, left : left + _jpeg.CROP]
    image = torch.from_numpy(pixels)
    return image.flip(1) if flip else image


def jpeg(
    source: _jpeg.JpegSource, *, tuned: bool = False, simplejpeg: bool = False, **options: Any
) -> Start:
    """Decode JPEG files in the workers."""
    options |= TUNED if tuned else {}
    decode = decode_with_simplejpeg if simplejpeg else decode_with_pillow
    return loader(Augmented(source, decode), _jpeg.BATCH_SIZE, **options)


def large_batches(
    pool: _large.Images,
    *,
    num_records: int = _large.NUM_RECORDS,
    tuned: bool = False,
    **options: Any,
) -> Start:
    """Batch arrays that exist already."""
    options |= TUNED if tuned else {}
    return loader(_large.PoolSource(pool, num_records), _large.BATCH_SIZE, **options)


def stragglers(**options: Any) -> Start:
    """Read numbers, some of which take long."""
    return loader(_waits.Steps(), stragglers_row.BATCH_SIZE, **options)


def waiting_reads(data: Mnist, **options: Any) -> Start:
    """Read MNIST from a source that waits."""
    return loader(_waits.WaitingSource(data), waiting_row.BATCH_SIZE, **options)


class Mapped(torch_data.Dataset[Any]):
    """MNIST, each record mapped by a function."""

    def __init__(self, data: Mnist, function: Callable[[Any], Any]) -> None:
        self._source = RecordSource(data)
        self._function = function

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        return self._function(self._source[index])


def heavy_import(data: Mnist, **options: Any) -> Start:
    """Map MNIST with a function of a module that takes long to import."""
    from benchmarks import _heavy  # by the program, as an import at the top of its file would

    return loader(Mapped(data, _heavy.transform), BATCH_SIZE, **options)


def samples(source: Samples, **options: Any) -> Start:
    """Read a dataset that lists its samples."""
    return loader(source, BATCH_SIZE, **options)


def strings(records: list[str], **options: Any) -> Start:
    """Read a Python list of strings, in lists."""
    made = torch_data.DataLoader(
        records, batch_size=BATCH_SIZE, num_workers=options.pop("worker_count"), **options
    )
    return lambda: iter(made)


def memory(images: _large.Images, *, batch_size: int, **options: Any) -> Start:
    """Read the images as one array, which forked workers share with their parent."""
    source = _large.PoolSource(images, len(images))
    return loader(source, batch_size, shuffle=True, **options)
