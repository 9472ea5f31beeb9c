"""The training of an image classifier is killed, and continues as if it had not been."""

import errno
import json
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # makes `tests.faults` importable whatever the import mode
    sys.path.insert(0, str(ROOT))

from gristmill.demo import load_mnist  # noqa: E402
from tests.faults.processes import gone, kill_quietly, until  # noqa: E402
from tests.faults.scripts import Script, clean_environment, run_command  # noqa: E402

EXAMPLE = ROOT / "examples" / "train_nnx.py"
SAVE_EVERY = 6
NUM_STEPS = 20  # two epochs of 315 images in batches of 32: one spans both, the last is smaller
TIME = r"\d+(?:\.\d+)? m?s"
SUMMARY = rf"waited for data \d+\.\d% of the time: {TIME} of {TIME}, {{}} elements"

# Runs the example, and stops at the n-th call of the system of some kind, which is named
# by Python's audit event. What takes long before it begins is done while another one trains.
PROGRAM = """
import json, os, re, runpy, sys, threading

import flax.nnx, jax, optax, orbax.checkpoint, rich.progress

import gristmill.demo

example, arguments, moment = json.loads(os.environ["RUN"])


def say(line):
    os.write(1, f"{line}\\n".encode())


def stop_at(wanted, pattern, number):
    def hook(event, details):
        nonlocal number
        if event == wanted and re.search(pattern, " ".join(map(str, details))):
            number -= 1
            if number == 0:
                say("at the moment")
                threading.Event().wait()  # until it is killed

    sys.addaudithook(hook)


say("ready")
input()
if moment:
    stop_at(*moment)
sys.argv = [example, *arguments]
runpy.run_path(example, run_name="__main__")
"""


class Moment(NamedTuple):
    """When to stop a training: at the n-th event whose details match a pattern."""

    event: str
    pattern: str
    number: int


def before_line(number: int) -> Moment:
    """Stop before a run writes its n-th loss: the step is done, and nothing reports it."""
    return Moment("open", r"losses\.jsonl", number)


COMMIT = Moment("os.rename", r"/\d+\.orbax-checkpoint-tmp\S* \S+/\d+ ", 1)
"""Stop before a checkpoint gets its name."""


class Loss(NamedTuple):
    """A line of the file of losses."""

    step: int
    loss: str


class Training:
    """A command that trains in a folder, run again and again."""

    def __init__(self, start: Callable[..., Script], folder: Path, **environment: str) -> None:
        self._start = start
        self._folder = folder
        self._environment = environment
        self._num_runs = 0
        folder.mkdir()

    def prepare(
        self,
        moment: Moment | None = None,
        *,
        workers: int = 0,
        cluster: Mapping[str, str] | None = None,
    ) -> Script:
        """Start a run, which waits for a line before it goes."""
        arguments = [
            *("--data", self._folder.parent / "mnist", "--epochs", 2, "--batch-size", 32),
            *("--checkpoints", self._folder / "checkpoints", "--save-every", SAVE_EVERY),
            *("--losses", self._folder / "losses.jsonl", "--workers", workers),
            *(["--distributed"] if cluster else []),
        ]
        self._num_runs += 1
        return self._start(
            PROGRAM,
            name=f"{self._folder.name}_{self._num_runs}.py",
            env=self._environment
            | {"RUN": json.dumps([str(EXAMPLE), [*map(str, arguments)], moment])}
            | dict(cluster or {}),
        )

    def losses(self) -> list[Loss]:
        """Return all that was written so far, by all runs."""
        path = self._folder / "losses.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Loss(**json.loads(line)) for line in lines]

    def last_checkpoint(self) -> int:
        """Return the step of the last checkpoint that has its name, 0 if there is none."""
        paths = (self._folder / "checkpoints").glob("*")
        return max((int(path.name) for path in paths if path.name.isdigit()), default=0)


def go(run: Script) -> None:
    run.wait_for("ready")
    run.tell("go")


def kill_at_the_moment(run: Script, training: Training, *, checkpoint: int) -> None:
    """Kill a run where it stops, once what it saves in the background is there."""
    while run.read_line() != "at the moment":
        pass
    until(lambda: training.last_checkpoint() == checkpoint, "the checkpoint is there")
    run.look()
    run.kill()
    until(gone(run.family), "its workers are gone")


def finish(run: Script) -> list[str]:
    """Let a run come to its end, and return what it printed."""
    lines = [run.read_line()]
    while not lines[-1].startswith("waited"):
        lines.append(run.read_line())
    done = run.finish()
    assert (done.code, done.out) == (0, ""), done.err
    return lines


def write_mnist(folder: Path, *, num_train: int, num_test: int) -> None:
    """Write a small data set in MNIST's files."""
    data = load_mnist()
    folder.mkdir()
    for name, array in {
        "train-images-idx3-ubyte": data.train_images[:num_train],
        "train-labels-idx1-ubyte": data.train_labels[:num_train],
        "t10k-images-idx3-ubyte": data.test_images[:num_test],
        "t10k-labels-idx1-ubyte": data.test_labels[:num_test],
    }.items():
        (folder / name).write_bytes(as_idx(array))


def as_idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">{array.ndim + 1}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run has compiled the next need not: that is most of its time."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture
def train_in(tmp_path: Path, compiled: dict[str, str]) -> Iterator[Callable[..., Training]]:
    """Yield a function that makes trainings; what is left of them is killed after the test."""
    write_mnist(tmp_path / "mnist", num_train=315, num_test=70)
    started: list[Script] = []

    def start(text: str, **options: Any) -> Script:
        started.append(Script(text, tmp_path, **options))
        return started[-1]

    def make(name: str, *, num_devices: int = 1, **environment: str) -> Training:
        flags = f"--xla_force_host_platform_device_count={num_devices}"
        return Training(start, tmp_path / name, XLA_FLAGS=flags, **compiled, **environment)

    yield make
    for one in started:
        kill_quietly([one.pid, *one.family])
        one.close()


def test_a_training_that_is_killed_again_and_again_has_the_losses_of_one_that_is_not(
    train_in: Callable[..., Training],
):
    undisturbed, killed = train_in("undisturbed"), train_in("killed")
    run, first = undisturbed.prepare(), killed.prepare(before_line(9))
    go(run)
    *_, accuracy, _ = finish(run)
    expected = undisturbed.losses()
    assert [loss.step for loss in expected] == list(range(1, NUM_STEPS + 1))

    go(first)
    second = killed.prepare(COMMIT, workers=1)
    kill_at_the_moment(first, killed, checkpoint=6)
    assert killed.losses() == expected[:8]

    go(second)  # after step 6; it dies before the checkpoint of step 12 is one
    last = killed.prepare()
    kill_at_the_moment(second, killed, checkpoint=6)
    replayed = killed.losses()[8:]
    assert len(replayed) >= 6
    assert replayed == expected[6 : 6 + len(replayed)]

    go(last)  # after step 6 once more
    lines = finish(last)
    assert killed.losses()[8 + len(replayed) :] == expected[6:]
    assert lines[1].startswith("resuming after step 6,")
    assert lines[-2] == accuracy
    assert re.fullmatch(SUMMARY.format(14), lines[-1])


def test_on_eight_devices_it_goes_on_with_the_same_losses(train_in: Callable[..., Training]):
    undisturbed = train_in("undisturbed", num_devices=8)
    killed = train_in("killed", num_devices=8)
    run, first = undisturbed.prepare(), killed.prepare(before_line(10))
    go(run)
    opening, *_, accuracy, _ = finish(run)
    assert opening == "Mnist(<315 to train, 70 to test>) on 8 x cpu"
    expected = undisturbed.losses()
    assert [loss.step for loss in expected] == list(range(1, NUM_STEPS + 1))

    go(first)
    last = killed.prepare(workers=1)
    kill_at_the_moment(first, killed, checkpoint=6)
    go(last)
    lines = finish(last)

    assert killed.losses() == expected[:9] + expected[6:]
    assert lines[-2] == accuracy


def is_free(job: int) -> bool:
    """Return whether the port that JAX derives from the number of a job is free."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", 2**16 - 2**12 + job)) == errno.ECONNREFUSED


def cluster_of(num_hosts: int) -> list[dict[str, str]]:
    """Return the environments in which Open MPI starts processes, and JAX finds the others."""
    job = next(filter(is_free, range(2**12)))
    return [
        {
            "OMPI_MCA_orte_hnp_uri": f"{job * 2**12}.0;tcp://127.0.0.1:1",
            "OMPI_COMM_WORLD_SIZE": str(num_hosts),
            "OMPI_COMM_WORLD_RANK": str(host),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(host),
        }
        for host in range(num_hosts)
    ]


def test_two_hosts_share_the_data_and_count_each_test_image_once(
    train_in: Callable[..., Training],
):
    # Compiled in half the time: no number is compared here.
    training = train_in("hosts", JAX_DISABLE_MOST_OPTIMIZATIONS="1")
    runs = [training.prepare(cluster=cluster) for cluster in cluster_of(2)]
    for run in runs:
        go(run)

    lines = finish(runs[0])
    second = runs[1].finish()

    assert second.code == 0, second.err
    assert "test accuracy" not in second.out  # one of them speaks for both
    assert [loss.step for loss in training.losses()] == list(range(1, NUM_STEPS + 1))
    assert lines[-2].endswith(" of 70 images")  # 35 each: two batches of 16, and one of 3


def test_it_learns_and_reports_how_long_it_waited(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--epochs", "1", "--batch-size", "64"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    opening, last, summary = done.stdout.splitlines()
    assert opening == "Mnist(<9600 to train, 2000 to test>) on 1 x cpu"
    reported = re.fullmatch(r"test accuracy (0\.\d{4}): ([\d,]+) of 2,000 images", last)
    assert reported
    assert float(reported[1]) > 0.9
    assert int(reported[2].replace(",", "")) / 2_000 == float(reported[1])
    assert re.fullmatch(SUMMARY.format(150), summary)
    assert done.stderr == ""  # no bar in a log, and no warnings
    assert list(tmp_path.iterdir()) == []  # nothing is written that was not asked for


def test_help_names_every_option():
    done = run_command(sys.executable, str(EXAMPLE), "--help")

    assert done.code == 0, done.err
    for option in (
        "epochs",
        "batch-size",
        "data",
        "checkpoints",
        "save-every",
        "workers",
        "losses",
    ):
        assert f"--{option} " in done.out
