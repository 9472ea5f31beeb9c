"""Actors and nodes that die, hang or are slow: not one record lost, repeated or changed."""

import itertools
import os
import random
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._engine.executors.ray.worker import RayWorker
from gristmill.errors import WorkerError
from tests.equivalence.executors import by_value
from tests.ray.clusters import actor_pids, add_node, kill_node, ray_options, stop_node, until

by_value(__name__)

TOTAL = 400


class Tracked(gm.Map):
    """Writes which process computes, and takes some time."""

    def __init__(self, folder: Path | None, seconds: float = 0.01) -> None:
        self.folder, self.seconds = folder, seconds

    def __repr__(self) -> str:  # part of states
        return "Tracked()"

    def map(self, element: Any) -> Any:
        if self.folder is not None:
            (self.folder / str(os.getpid())).touch()
        time.sleep(self.seconds)
        return np.full(5000, element)


def loader_of(*operations: Any, num_workers: int = 2, total: int = TOTAL, **options: Any) -> Any:
    return gm.DataLoader(
        data_source=range(total),
        sampler=gm.IndexSampler(total, shuffle=True, seed=1, num_epochs=1),
        operations=[*operations, gm.Batch(8)],
        worker_count=num_workers,
        worker_options=ray_options(**options),
    )


def expected(total: int = TOTAL) -> list[list[int]]:
    loader = gm.DataLoader(
        data_source=range(total),
        sampler=gm.IndexSampler(total, shuffle=True, seed=1, num_epochs=1),
        operations=[gm.Batch(8)],
    )
    return [batch.tolist() for batch in loader]


def firsts(batches: list[Any]) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in batches]


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("seed", [0, 1])
def test_actors_killed_at_random_moments_cost_no_record(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    kills = sorted(rng.sample(range(1, TOTAL // 8), 3))
    batches: list[Any] = []
    with closing(loader_of(Tracked(tmp_path))) as loader, closing(iter(loader)) as iterator:
        for batch in iterator:
            batches.append(batch)
            if len(batches) in kills:
                pid = rng.choice(pids_in(tmp_path))
                (tmp_path / str(pid)).unlink()
                os.kill(pid, signal.SIGKILL)
        restarts = iterator.stats().num_restarts

    assert firsts(batches) == expected()
    assert restarts >= 1


def test_a_node_killed_costs_no_record_and_is_not_used_again(cluster: Any, tmp_path: Path):
    node = add_node(cluster, resources={"doomed": 1})
    batches: list[Any] = []
    loader = loader_of(Tracked(tmp_path), num_workers=6)
    with closing(loader), closing(iter(loader)) as iterator:
        for batch in iterator:
            batches.append(batch)
            if len(batches) == 5:
                kill_node(node)

    assert firsts(batches) == expected()
    cluster.remove_node(node, allow_graceful=False)


def test_a_node_that_hangs_is_not_waited_for(cluster: Any, tmp_path: Path):
    node = add_node(cluster)
    batches: list[Any] = []
    loader = loader_of(Tracked(tmp_path), num_workers=6)
    try:
        with closing(loader), closing(iter(loader)) as iterator:
            for batch in iterator:
                batches.append(batch)
                if len(batches) == 5:
                    stop_node(node)
    finally:
        stop_node(node, signal.SIGCONT)
        kill_node(node)

    assert firsts(batches) == expected()
    cluster.remove_node(node, allow_graceful=False)


def test_a_block_whose_object_is_lost_before_it_is_fetched_is_computed_again(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
):
    before = {node["NodeID"] for node in ray.nodes()}
    node = add_node(cluster)
    (doomed,) = {node["NodeID"] for node in ray.nodes()} - before
    fetch, lost = RayWorker.fetch, list[int]()

    def lose_and_fetch(self: RayWorker, number: int, header: BlockHeader) -> None:
        if self.node_id == doomed and not lost:
            lost.append(number)
            kill_node(node)
        fetch(self, number, header)

    monkeypatch.setattr(RayWorker, "fetch", lose_and_fetch)
    with closing(loader_of(Tracked(None), num_workers=6)) as loader:
        batches = list(loader)

    assert firsts(batches) == expected()
    assert lost
    cluster.remove_node(node, allow_graceful=False)


@dataclass(frozen=True)
class Course:
    """A stream, and what happens to the cluster after how many of its batches."""

    total: int
    size: int
    keeps: int
    seed: int
    num_workers: int
    happenings: dict[int, str]

    def loader(self, folder: Path | None) -> gm.DataLoader:
        is_remote = folder is not None
        return gm.DataLoader(
            data_source=range(self.total),
            sampler=gm.IndexSampler(self.total, shuffle=True, seed=self.seed, num_epochs=1),
            operations=[
                Tracked(folder, 0.02 if is_remote else 0.0),
                Keep(self.keeps),
                gm.Batch(self.size),
            ],
            read_options=gm.ReadOptions(num_threads=0),
            worker_count=self.num_workers if is_remote else 0,
            worker_options=ray_options() if is_remote else None,
        )


class Keep(gm.Filter):
    """Drops some records."""

    def __init__(self, keeps: int) -> None:
        self.keeps = keeps

    def filter(self, element: Any) -> bool:
        return bool(element[0] % 7 < self.keeps)


courses = st.builds(
    Course,
    total=st.integers(150, 250),
    size=st.integers(1, 8),
    keeps=st.integers(5, 7),
    seed=st.integers(0, 9),
    num_workers=st.integers(2, 5),
    happenings=st.dictionaries(
        st.integers(1, 25),
        st.sampled_from(["an actor dies", "a node dies", "a node joins", "another executor"]),
        min_size=2,
        max_size=4,
    ),
)


@given(course=courses)
@settings(deadline=None, print_blob=True, max_examples=4)
def test_whatever_happens_to_nodes_and_actors_the_stream_and_its_states_are_the_same(
    cluster: Any, tmp_path_factory: pytest.TempPathFactory, course: Course
):
    with closing(iter(course.loader(None))) as iterator:
        stream = [(batch[:, 0].tolist(), iterator.get_state()) for batch in iterator]

    folder = tmp_path_factory.mktemp("pids")
    nodes = [add_node(cluster)]
    found: list[tuple[list[int], Any]] = []
    loader = course.loader(folder)
    iterator = iter(loader)
    try:
        for batch in iterator:
            found.append((batch[:, 0].tolist(), iterator.get_state()))
            happening = course.happenings.get(len(found))
            if happening == "an actor dies":
                for pid in list(set(pids_in(folder)) & set(actor_pids()))[:1]:
                    os.kill(pid, signal.SIGKILL)
            elif happening == "a node dies" and nodes:
                kill_node(nodes[0])
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
            elif happening == "a node joins":
                nodes.append(add_node(cluster))
            elif happening == "another executor":
                state = iterator.get_state()
                with closing(iter(course.loader(None))) as other:
                    other.set_state(state)
                    rest = itertools.islice(other, 3)
                    found.extend((one[:, 0].tolist(), other.get_state()) for one in rest)
                    iterator.set_state(other.get_state())
    finally:
        iterator.close()
        loader.close()
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)

    assert found == stream


class Deadly(gm.Map):
    """One record kills every process that computes it."""

    def map(self, element: Any) -> Any:
        if element == 77:
            os.kill(os.getpid(), signal.SIGKILL)
        return element


@pytest.mark.usefixtures("cluster")
def test_a_record_that_kills_its_actor_three_times_is_named():
    loader = loader_of(Deadly())
    with (
        closing(loader),
        pytest.raises(WorkerError, match=r"(?i)record.*77.* killed its worker 3 times") as caught,
    ):
        list(loader)
    assert "by a crash or a kill of its process, such as for lack of memory. " in str(caught.value)


class Hanging(Tracked):
    """One record is never done."""

    def map(self, element: Any) -> Any:
        super().map(element)
        if element == 5:
            signal.pause()
        return element


@pytest.mark.usefixtures("cluster")
def test_a_record_that_hangs_is_named_after_its_time_limit_and_leaves_no_actor(tmp_path: Path):
    loader = loader_of(Hanging(tmp_path), total=16, num_workers=1, block_timeout_s=0.5)
    with closing(loader), pytest.raises(WorkerError, match=r"exceeding `block_timeout_s`"):
        list(loader)

    pids = pids_in(tmp_path)
    assert len(pids) == 3
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all actors end")


@pytest.mark.usefixtures("cluster")
def test_an_error_in_an_actor_keeps_its_type_and_names_the_node():
    class Broken(gm.Map):
        def map(self, element: Any) -> Any:
            raise FileNotFoundError(2, "No such file", "/data/shard-7")

    with closing(loader_of(Broken())) as loader, pytest.raises(FileNotFoundError) as caught:
        next(iter(loader))

    notes = "\n".join(caught.value.__notes__)
    assert "The file is missing on node " in notes
    assert ray.nodes()[0]["NodeManagerAddress"] in notes


class Reads(gm.Map):
    """Every tenth record is in a file that only some nodes have."""

    def __init__(self, nodes: set[str]) -> None:
        self.nodes = nodes

    def __repr__(self) -> str:  # part of states
        return "Reads()"

    def map(self, element: Any) -> Any:
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "none"
        if element % 10 == 3 and node not in self.nodes:
            raise FileNotFoundError(2, "No such file", f"/data/{element}.jpg")
        time.sleep(0.005)  # both nodes get blocks
        return element


@pytest.mark.parametrize(
    ("where", "pool"),
    [
        ("one node", None),
        ("other node", None),
        ("here", None),
        ("nowhere", None),
        ("here", "missing files"),
    ],
)
def test_what_is_skipped_for_a_missing_file_does_not_depend_on_the_node(
    cluster: Any, where: str, pool: str | None, caplog: pytest.LogCaptureFixture
):
    here = ray.get_runtime_context().get_node_id()
    others = [node.node_id for node in cluster.worker_nodes]
    has_file = {
        "one node": {others[0]},
        "other node": {others[1]},
        "here": {here},
        "nowhere": set[str](),
    }[where]

    def read(nodes: set[str], **arguments: Any) -> Any:
        loader = gm.load(
            range(400),
            num_epochs=1,
            transformations=[Reads(nodes)],
            read_options=gm.ReadOptions(num_threads=0),
            on_error=gm.SkipErrors(1000),
            **arguments,
        )
        with closing(loader), closing(iter(loader)) as iterator:
            return list(iterator), iterator.get_state(), iterator.skipped

    options = ray_options(shared_pool=pool, idle_timeout_s=1.0)
    found = read(has_file, worker_count=2, worker_options=options)

    assert found == read({here} if has_file else set())
    assert len(found[2]) == (0 if has_file else 40)
    if pool is None and has_file.isdisjoint(others):
        assert "of the Ray cluster, a record could not be computed: FileNotFound" in caplog.text
