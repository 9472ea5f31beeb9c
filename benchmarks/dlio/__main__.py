"""Run DLIO with PyTorch's loader and with gristmill's on the same files: `make dlio`.

It prints the samples per second of each epoch. The first one includes the start of the workers.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_EPOCH = re.compile(r"Epoch (\d+) - Block 1 \[Training\] Throughput \(samples/second\): ([0-9.]+)")
NUM_EPOCHS = 3
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
COMMON = {
    "workload.workflow.checkpoint": False,
    "workload.reader.read_threads": 2,
    "workload.train.epochs": NUM_EPOCHS,
    "workload.train.computation_time": 0.001,  # the loader is the bottleneck
}
WORKLOADS: dict[str, dict[str, object]] = {
    "unet3d-like npz, 64 files of 8 MB, batch 4": {
        "workload.dataset.format": "npz",
        "workload.dataset.num_files_train": 64,
        "workload.dataset.record_length": 8_388_608,
        "workload.dataset.record_length_stdev": 0,
        "workload.dataset.record_length_resize": 2_097_152,
        "workload.reader.batch_size": 4,
    },
    "JPEG, 512 files of 250 kB of pixels, batch 32": {
        "workload.dataset.format": "jpeg",
        "workload.dataset.num_files_train": 512,
        "workload.dataset.record_length": 250_000,
        "workload.dataset.record_length_stdev": 0,
        "workload.dataset.record_length_resize": 150_528,
        "workload.reader.batch_size": 32,
    },
}
LOADERS: dict[str, dict[str, object]] = {
    "PyTorch": {},
    "gristmill": {
        "workload.reader.data_loader_classname": "benchmarks.dlio.data_loader.GristmillDataLoader",
        "workload.reader.data_loader_sampler": "index",
    },
}


def run(folder: Path, options: dict[str, object]) -> str:
    """Run DLIO with some options, and return its output."""
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dlio_benchmark.main", "workload=unet3d_a100"),
            f"++workload.dataset.data_folder={folder / 'data'}",
            f"hydra.run.dir={folder / 'out'}",
            *(f"++{name}={value}" for name, value in options.items()),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"DLIO ended with code {done.returncode}.\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def throughputs(output: str) -> list[float]:
    """Return the samples per second of each epoch.

    >>> throughputs("[INFO] Epoch 1 - Block 1 [Training] Throughput (samples/second): 7.08 [x]")
    [7.08]
    """
    found = {int(epoch): float(rate) for epoch, rate in _EPOCH.findall(output)}
    return [found[epoch] for epoch in sorted(found)]


def main() -> None:
    """Run all workloads, each on files that are generated once."""
    for title, workload in WORKLOADS.items():
        with tempfile.TemporaryDirectory(prefix="gristmill-dlio-") as name:
            folder = Path(name)
            generate = {"workload.workflow.generate_data": True, "workload.workflow.train": False}
            run(folder, {**COMMON, **workload, **generate})
            rates: dict[str, list[float]] = {}
            print(f"{title}, 2 workers: samples/s in each epoch")
            for loader, options in LOADERS.items():
                rates[loader] = throughputs(run(folder, {**COMMON, **workload, **options}))
                print(f"  {loader:10}", *(f"{rate:10.1f}" for rate in rates[loader]), flush=True)
            ratios = [ours / theirs for theirs, ours in zip(*rates.values(), strict=True)]
            print(f"  {'ratio':10}", *(f"{ratio:9.2f}x" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
