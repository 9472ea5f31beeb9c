"""Use an installed gristmill once per extra: `python scripts/smoke_test.py jax parquet ...`.

It runs outside of the checkout, with nothing but the wheel and the named extras installed.
"""

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gristmill as grain


def check_core(_: Path) -> None:
    """Two worker processes, a state, and the rest of the stream after it."""
    for workers in (0, 2):
        loader = grain.load(
            range(100), shuffle=True, seed=1, num_epochs=1, batch_size=7, worker_count=workers
        )
        iterator = iter(loader)
        next(iterator)
        state = iterator.get_state()
        rest = [batch.tolist() for batch in iterator]
        resumed = iter(loader)
        resumed.set_state(state)
        assert [batch.tolist() for batch in resumed] == rest
        assert sum(map(len, rest)) == 93


def check_jax(_: Path) -> None:
    """Batches on the device."""
    import jax  # noqa: PLC0415

    for batch in grain.feed(grain.load(np.arange(8.0), num_epochs=1, batch_size=4)):
        assert isinstance(batch, jax.Array)


def check_parquet(folder: Path) -> None:
    """A Parquet file."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.table({"x": list(range(10))}), folder / "x.parquet")
    assert grain.sources.ParquetSource(folder / "x.parquet")[3]["x"] == 3


def check_fsspec(_: Path) -> None:
    """A file in a store."""
    import fsspec  # noqa: PLC0415

    with fsspec.open("memory://lines.jsonl", "w") as file:
        file.write('{"x": 1}\n{"x": 2}\n')
    assert grain.sources.JsonLinesSource("memory://lines.jsonl")[1] == {"x": 2}


def check_image(_: Path) -> None:
    """A JPEG."""
    from PIL import Image  # noqa: PLC0415

    file = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 10, 10)).save(file, "jpeg")
    assert grain.transforms.DecodeImage(key=None).map(file.getvalue()).shape == (6, 8, 3)


def check_array_record(folder: Path) -> None:
    """An ArrayRecord file."""
    from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415

    writer = ArrayRecordWriter(str(folder / "x.array_record"), "group_size:1")
    writer.write(b"one")
    writer.close()
    assert grain.ArrayRecordDataSource(str(folder / "x.array_record"))[0] == b"one"


def check_demo(_: Path) -> None:
    """The demo."""
    from gristmill._cli.main import main  # noqa: PLC0415

    assert main(["demo", "--epochs", "1"]) == 0


def check_orbax(folder: Path) -> None:
    """A checkpoint of Orbax."""
    import orbax.checkpoint as ocp  # noqa: PLC0415

    loader = grain.load(range(10), num_epochs=1, batch_size=2)
    iterator, resumed = iter(loader), iter(loader)
    next(iterator)
    with ocp.CheckpointManager(folder / "checkpoints") as manager:
        manager.save(1, args=grain.checkpoint.CheckpointSave(iterator))
        manager.wait_until_finished()
        manager.restore(1, args=grain.checkpoint.CheckpointRestore(resumed))
    assert next(resumed).tolist() == next(iterator).tolist() == [2, 3]


def check_hdf5(folder: Path) -> None:
    """An HDF5 file."""
    import h5py  # noqa: PLC0415

    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = np.arange(10)
    assert grain.sources.Hdf5Source(folder / "x.h5")[3]["x"] == 3


def check_zarr(folder: Path) -> None:
    """A Zarr group."""
    import zarr  # noqa: PLC0415

    zarr.open_group(str(folder / "x.zarr"), mode="w")["x"] = np.arange(10)
    assert grain.sources.ZarrSource(folder / "x.zarr")[3]["x"] == 3


def check_zstd(folder: Path) -> None:
    """A text file compressed with Zstandard."""
    import zstandard  # noqa: PLC0415

    (folder / "x.txt.zst").write_bytes(zstandard.compress(b"one\ntwo\n"))
    assert grain.sources.TextSource(folder / "x.txt.zst")[1] == "two"


def check_audio(_: Path) -> None:
    """A WAV file."""
    import soundfile  # noqa: PLC0415

    file = io.BytesIO()
    soundfile.write(file, np.zeros(80, np.float32), 8000, format="WAV")
    assert grain.transforms.DecodeAudio(key=None).map(file.getvalue()).shape[0] == 80


def check_video(_: Path) -> None:
    """The frames of a video."""
    import av  # noqa: PLC0415

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 32
        for _frame in range(3):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert len(grain.transforms.DecodeVideo(key=None).map(file.getvalue())) == 3


def check_torch(_: Path) -> None:
    """A dataset of PyTorch, and tensors."""
    import torch  # noqa: PLC0415

    dataset = torch.utils.data.TensorDataset(torch.arange(10))
    loader = grain.load(grain.from_torch(dataset), num_epochs=1, batch_size=5)
    assert all(isinstance(batch[0], torch.Tensor) for batch in grain.to_torch(loader))


def check_huggingface(_: Path) -> None:
    """A dataset of Hugging Face."""
    import datasets  # noqa: PLC0415

    assert grain.from_huggingface(datasets.Dataset.from_dict({"x": [1, 2, 3]}))[1]["x"] == 2


def check_tfds(folder: Path) -> None:
    """A dataset of TFDS, without TensorFlow."""
    import tensorflow_datasets as tfds  # noqa: PLC0415
    from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415

    features = tfds.features.FeaturesDict({"x": np.int64})
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="numbers", split="train", filetype_suffix="array_record"
    )
    split = tfds.core.SplitInfo(
        name="train", shard_lengths=[2], num_bytes=0, filename_template=template
    )
    writer = ArrayRecordWriter(str(split.filepaths[0]), "group_size:1")
    for x in (1, 2):
        writer.write(features.serialize_example({"x": x}))
    writer.close()
    tfds.folder_dataset.write_metadata(
        data_dir=folder, features=features, split_infos=[split], check_data=False
    )
    rows = grain.from_tfds(tfds.builder_from_directory(folder), split="train")
    assert [int(row["x"]) for row in rows] == [1, 2]


def check_ray(_: Path) -> None:
    """Two actors on a local Ray cluster."""
    import ray  # noqa: PLC0415

    options = grain.RayOptions()
    loader = grain.load(
        range(10), num_epochs=1, batch_size=5, worker_count=2, worker_options=options
    )
    with loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    ray.shutdown()


def check_progress(_: Path) -> None:
    """A progress bar."""
    assert len(list(grain.progress(grain.load(range(4), num_epochs=1)))) == 4


def check_prometheus(_: Path) -> None:
    """Metrics of Prometheus."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    registry = CollectorRegistry()
    loader = grain.load(range(4), num_epochs=1)
    with grain.exporters.to_prometheus(loader, registry=registry, name="smoke"):
        list(loader)
        assert b"gristmill_elements_total" in generate_latest(registry)


def check_opentelemetry(_: Path) -> None:
    """Instruments of OpenTelemetry."""
    loader = grain.load(range(4), num_epochs=1)
    with grain.exporters.to_opentelemetry(loader):
        list(loader)


CHECKS: dict[str, Callable[[Path], None]] = {
    "": check_core,
    "jax": check_jax,
    "parquet": check_parquet,
    "fsspec": check_fsspec,
    "image": check_image,
    "array-record": check_array_record,
    "demo": check_demo,
    "orbax": check_orbax,
    "hdf5": check_hdf5,
    "zarr": check_zarr,
    "zstd": check_zstd,
    "audio": check_audio,
    "video": check_video,
    "torch": check_torch,
    "huggingface": check_huggingface,
    "tfds": check_tfds,
    "ray": check_ray,
    "progress": check_progress,
    "prometheus": check_prometheus,
    "opentelemetry": check_opentelemetry,
}

if __name__ == "__main__":
    for extra in dict.fromkeys(["", *sys.argv[1:]]):
        with tempfile.TemporaryDirectory() as folder:
            check = CHECKS[extra.replace("_", "-")]
            check(Path(folder))
        sys.stdout.write(f"ok: {extra or 'core'}: {check.__doc__}\n")
