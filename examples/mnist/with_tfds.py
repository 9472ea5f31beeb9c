"""TensorFlow Datasets: a dataset prepared on disk, `tfds.as_numpy`, and gristmill over it."""

import contextlib
import io
import zlib

import tensorflow_datasets as tfds

import gristmill
from mnist.contender import Contender

PEER = "TFDS as_numpy"


class MnistFromArrays(tfds.core.GeneratorBasedBuilder):
    """The MNIST dataset of TFDS, prepared from arrays instead of a download."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # TFDS would look there for checksums of downloads; there are none

    def __init__(self, images, labels, *, advance=lambda images: None, **options):
        self._images, self._labels, self._advance = images, labels, advance
        super().__init__(**options)

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
            disable_shuffling=True,  # else TFDS stores them in another order
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for index, image in enumerate(self._images):
            yield index, {"image": image[..., None], "label": int(self._labels[index])}
            self._advance(1)


def prepare(images, labels, folder, advance=lambda images: None):
    """Return a builder whose dataset is on disk, in a subfolder named after the images.

    Writing it takes half a minute for 60,000 images; an existing dataset is reused.
    """
    name = f"mnist-{len(images)}-{zlib.crc32(labels.tobytes(), zlib.crc32(images.tobytes())):08x}"
    builder = MnistFromArrays(images, labels, advance=advance, data_dir=str(folder / name))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints messages about downloads
        tfds.disable_progress_bar()
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    return builder


def contenders(data, *, batch_size, workers, work, advance):
    """Return the loaders of TFDS and of gristmill, over the files of one builder."""
    builder = prepare(data.train_images, data.train_labels, work, advance)
    theirs = builder.as_dataset(split="train", as_supervised=True).batch(batch_size).prefetch(1)
    # TFDS caches a small dataset in memory, and TensorFlow warns if only part of it is read.
    few = builder.as_dataset(split=f"train[:{batch_size}]", as_supervised=True).batch(batch_size)
    (first,) = tfds.as_numpy(few)
    ours = (
        gristmill.from_tfds(builder, split="train", as_supervised=True)
        .batch(batch_size)
        .to_iter_dataset()
        .mp_prefetch(gristmill.MultiprocessingOptions(num_workers=workers))
    )
    return [
        Contender(PEER, lambda: tfds.as_numpy(theirs), first=lambda: first),
        Contender("gristmill.from_tfds", lambda: ours, peer=PEER),
    ]
