"""The ends of clusters, of programs and of actors: clear errors, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import gristmill as gm
from gristmill._engine.executors.ray.cluster import nodes
from tests.equivalence.executors import by_value
from tests.ray.clusters import add_node, ray_options, until

by_value(__name__)


class WhereAmI(gm.Map):
    """Returns what an actor sees of its process."""

    def map(self, element: Any) -> Any:
        import jax  # noqa: PLC0415 - in the actor

        return {
            "pid": os.getpid(),
            "seed": os.environ.get("PYTHONHASHSEED"),
            "platform": jax.default_backend(),
            "is_distributed": jax.distributed.is_initialized(),
        }


def loader_of(*operations: Any, total: int = 200, **options: Any) -> Any:
    return gm.DataLoader(
        data_source=range(total),
        sampler=gm.IndexSampler(total, num_epochs=1),
        operations=operations,
        worker_count=options.pop("worker_count", 1),
        worker_options=ray_options(**options),
    )


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("seed", "expected"), [(None, "0"), ("7", "7")])
def test_actors_see_the_cpu_only_and_join_no_distributed_job(
    monkeypatch: pytest.MonkeyPatch, seed: str | None, expected: str
):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if seed is not None:  # as worker processes have it
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    with closing(loader_of(WhereAmI(), total=2)) as loader:
        seen = list(loader)

    assert [(one["platform"], one["is_distributed"], one["seed"]) for one in seen] == [
        ("cpu", False, expected)
    ] * 2


class Pid(gm.Map):
    """Returns the process that computes."""

    def map(self, element: Any) -> Any:
        return os.getpid()


@pytest.mark.usefixtures("cluster")
def test_actors_are_kept_between_epochs_and_end_with_their_loader():
    with closing(loader_of(Pid())) as loader:
        first, second = set(loader), set(loader)
        stats = loader.stats()

    assert first == second
    (worker,) = stats.workers
    assert stats.executor == "ray"
    assert stats.num_restarts == 0
    assert worker.num_blocks > 0
    assert worker.name.startswith("gristmill test_lifetime.py:")
    assert worker.node.startswith(ray.nodes()[0]["NodeManagerAddress"])
    assert worker.busy_s > 0 <= worker.network_wait_s
    assert [node.num_blocks for node in stats.nodes] == [worker.num_blocks]
    (pid,) = first
    until(lambda: not Path(f"/proc/{pid}").exists(), "the actor ends with its loader")


class Folder:
    """A dataset with a long list."""

    def __init__(self) -> None:
        self.samples = [(f"{number}.jpeg", number) for number in range(120_000)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return os.getpid(), self.samples[index]


@pytest.mark.usefixtures("cluster")
def test_actors_are_kept_for_a_dataset_with_a_long_list_until_it_changes():
    folder = Folder()
    loader = gm.DataLoader(
        data_source=folder,
        sampler=gm.IndexSampler(len(folder), num_epochs=1),
        worker_count=1,
        worker_options=ray_options(),
    )
    with closing(loader):
        (pid, first), (again, _) = (next(iter(loader)) for _ in range(2))
        assert first == ("0.jpeg", 0)
        assert pid == again

        folder.samples[0] = ("changed", 0)

        assert next(iter(loader))[1] == ("changed", 0)


@pytest.mark.usefixtures("cluster")
def test_an_actor_that_dies_while_it_is_idle_is_replaced(monkeypatch: pytest.MonkeyPatch):
    idle_s = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + idle_s)
    monkeypatch.setattr(nodes, "time", clock)
    with closing(loader_of(Pid())) as loader:
        (pid,) = set(loader)
        os.kill(pid, signal.SIGKILL)
        idle_s = 3600.0  # the cluster has had room all the time

        assert set(loader) != {pid}


@pytest.mark.usefixtures("cluster")
def test_an_actor_that_dies_while_it_starts_is_counted(tmp_path: Path):
    def die_once(worker: int, num_workers: int) -> None:
        if not (tmp_path / "has died").exists():
            (tmp_path / "has died").touch()
            os._exit(1)

    with closing(loader_of(Pid(), worker_init_fn=die_once)) as loader:
        list(loader)
        stats = loader.stats()

    assert stats.num_restarts == 1
    assert [worker.num_restarts for worker in stats.workers] == [1]
    assert [node.num_restarts for node in stats.nodes] == [1]


PROGRAM = """
import os, sys, time
import gristmill as gm

loader = gm.DataLoader(
    data_source=range(10_000),
    sampler=gm.IndexSampler(10_000, num_epochs=1),
    operations=[lambda x: os.getpid()],
    worker_count=2,
    worker_options=gm.RayOptions(address=sys.argv[1], num_cpus=0.25, start_timeout_s=30.0),
)
iterator = iter(loader)
print(next(iterator), flush=True)
time.sleep(600)
"""


def test_the_death_of_the_program_leaves_no_actor(cluster: Any):
    command = [sys.executable, "-c", PROGRAM, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        program.send_signal(signal.SIGKILL)

    until(lambda: not Path(f"/proc/{pid}").exists(), "the actor ends with its program")


def test_a_node_that_joins_is_used_when_the_consumer_waits(cluster: Any):
    node = add_node(cluster, num_cpus=2, resources={"elastic": 2})
    loader = loader_of(
        Slow(), total=60_000, worker_count=None, resources={"elastic": 1}, num_cpus=0.1
    )
    with closing(loader), closing(iter(loader)) as iterator:
        take_until(iterator, num_pids=2)
        other = add_node(cluster, num_cpus=2, resources={"elastic": 2})
        take_until(iterator, num_pids=3)
        nodes = {worker.node for worker in iterator.stats().workers if worker.num_blocks}

    assert len(nodes) == 2
    for one in (node, other):
        cluster.remove_node(one, allow_graceful=False)


def take_until(iterator: Any, *, num_pids: int) -> None:
    """Take elements until that many actors have computed some."""
    pids: set[int] = set()
    for pid in iterator:
        pids.add(pid)
        if len(pids) >= num_pids:
            return
    raise AssertionError(f"the stream ended with {len(pids)} actors")


class Slow(Pid):
    """Takes some time."""

    def map(self, element: Any) -> Any:
        np.linalg.svd(np.random.default_rng(0).random((60, 60)))
        return super().map(element)


OTHER_NUMPY = """
import numpy.version
numpy.version.version = "1.0.0"
"""


def test_a_node_with_another_version_is_refused_by_name(cluster: Any, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(OTHER_NUMPY)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        bad = add_node(cluster, resources={"picky": 1})
    message = (
        r"No node of the Ray cluster can be used: node [\d.]+/\w+ has NumPy 1.0.0 instead of "
        rf"{np.__version__}. Install the same versions on all of them."
    )
    with (
        closing(loader_of(Pid(), resources={"picky": 1})) as loader,
        pytest.raises(gm.errors.WorkerError, match=message),
    ):
        next(iter(loader))
    cluster.remove_node(bad, allow_graceful=False)


END_OF_CLUSTER = """
import sys
sys.path.insert(0, sys.argv[1])
import os
from tests.ray.clusters import ENVIRONMENT, start_cluster
os.environ.update(ENVIRONMENT)
import ray
import gristmill as gm

cluster = start_cluster(1)
loader = gm.DataLoader(
    data_source=range(10_000_000),
    sampler=gm.IndexSampler(10_000_000, num_epochs=1),
    worker_count=1,
    worker_options=gm.RayOptions(
        address=cluster.address,
        num_cpus=0.25,
        start_timeout_s=30.0,
        shared_pool=sys.argv[2] or None,
    ),
)
iterator = iter(loader)
next(iterator)
{what_happens}
try:
    for element in iterator:
        pass
except gm.errors.WorkerError as error:
    print(error, flush=True)
    for processes in cluster.head_node.all_processes.values():
        for process in processes:
            process.process.kill()
    os._exit(0)
"""


LOSE_HEAD = """
for kind in ("gcs_server", "raylet"):
    for process in cluster.head_node.all_processes[kind]:
        process.process.kill()
"""


HANG_HEAD = """
import signal
from tests.ray.clusters import actor_pids, children_of
cluster.head_node.all_processes["gcs_server"][0].process.send_signal(signal.SIGSTOP)
raylet = cluster.head_node.all_processes["raylet"][0].process.pid
for pid in set(actor_pids()) & set(children_of(raylet)):
    os.kill(pid, signal.SIGKILL)
"""


NO_ANSWER = "The head of the Ray cluster has not answered for 5 s"
LEFT = "`ray.shutdown()` was called while a Ray cluster computed elements."


@pytest.mark.parametrize(
    ("what_happens", "message", "shared_pool"),
    [
        (LOSE_HEAD, NO_ANSWER, ""),
        (LOSE_HEAD, NO_ANSWER, "of a lost head"),
        (HANG_HEAD, NO_ANSWER, ""),
        ("ray.shutdown()", LEFT, ""),
        ("ray.shutdown()", LEFT, "of a program that leaves"),
    ],
    ids=["head", "head, shared", "hanging head", "shutdown", "shutdown, shared"],
)
def test_the_end_of_the_cluster_is_a_clear_error(what_happens: str, message: str, shared_pool: str):
    root = Path(__file__).parents[2]
    program = END_OF_CLUSTER.replace("{what_happens}", what_happens)
    command = [sys.executable, "-c", program, str(root), shared_pool]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert message in ended.stdout
