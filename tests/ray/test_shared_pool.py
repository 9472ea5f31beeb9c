"""Several readers of one plan: each block computed once for all of them, exactly and in order."""

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import gristmill as gm
from gristmill.errors import PlanError, WorkerError
from tests.equivalence.executors import by_value
from tests.ray.clusters import ray_options, until

by_value(__name__)

TOTAL = 2000


class Counted(gm.Map):
    """Appends to a file whenever it computes a record."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def map(self, element: Any) -> Any:
        with self.path.open("a") as file:
            file.write(f"{element}\n")
        return element * 3

    def __repr__(self) -> str:
        return "Counted()"


def loader_of(path: Path, pool: str, **options: Any) -> Any:
    return gm.DataLoader(
        data_source=range(TOTAL),
        sampler=gm.IndexSampler(TOTAL, shuffle=True, seed=1, num_epochs=1),
        operations=[Counted(path), gm.Batch(10)],
        worker_count=1 if pool else 0,
        worker_options=ray_options(shared_pool=pool, idle_timeout_s=1.0, **options)
        if pool
        else None,
    )


def broker_of(pool: str) -> Any:
    return ray.get_actor(f"gristmill pool {pool}", namespace="gristmill")


def bytes_in(pool: str) -> int:
    described: Any = ray.get(broker_of(pool).describe.remote())
    return described["num_bytes"]


def is_gone(pool: str) -> bool:
    try:
        broker_of(pool)
    except ValueError:
        return True
    return False


@pytest.mark.usefixtures("cluster")
def test_readers_in_step_get_the_stream_and_each_record_is_computed_once(tmp_path: Path):
    computed, other = tmp_path / "computed", tmp_path / "other"
    expected = [batch.tolist() for batch in loader_of(other, "")]
    loaders = [loader_of(computed, "in step") for _ in range(3)]
    iterators = [iter(loader) for loader in loaders]
    firsts = [next(iterator).tolist() for iterator in iterators]
    streams = [[first] for first in firsts]
    for _ in range(len(expected) - 1):
        for stream, iterator in zip(streams, iterators, strict=True):
            stream.append(next(iterator).tolist())

    assert streams == [expected] * 3
    lines = computed.read_text().split()
    assert len(lines) == len(set(lines)) == TOTAL
    for loader, iterator in zip(loaders, iterators, strict=True):
        iterator.close()
        loader.close()
    until(lambda: is_gone("in step"), "the pool ends after its last reader")


class Lengthy(Counted):
    """Takes so long that a block takes more than a second."""

    def map(self, element: Any) -> Any:
        time.sleep(0.006)
        return super().map(element)


@pytest.mark.usefixtures("cluster")
def test_blocks_that_take_longer_than_a_second_are_computed_once(tmp_path: Path):
    computed, total = tmp_path / "computed", 5 * 256
    loader = gm.DataLoader(
        data_source=range(total),
        sampler=gm.SequentialSampler(total, gm.NoSharding()),
        operations=[Lengthy(computed)],
        worker_count=2,
        read_options=gm.ReadOptions(num_threads=0),
        worker_options=ray_options(shared_pool="lengthy", idle_timeout_s=1.0),
    )
    with closing(loader):
        assert list(loader) == [3 * number for number in range(total)]

    lines = computed.read_text().split()
    assert len(lines) == len(set(lines)) == total


@pytest.mark.usefixtures("cluster")
def test_a_slow_reader_holds_nobody_up_and_misses_nothing(tmp_path: Path):
    computed, other = tmp_path / "computed", tmp_path / "other"
    expected = [batch.tolist() for batch in loader_of(other, "")]
    slow = loader_of(computed, "slow", shared_pool_bytes=1)
    with closing(slow), closing(iter(slow)) as late:
        start = [next(late).tolist()]
        fast = loader_of(computed, "slow", shared_pool_bytes=1)
        with closing(fast):
            assert [batch.tolist() for batch in fast] == expected
        assert start + [batch.tolist() for batch in late] == expected


@pytest.mark.usefixtures("cluster")
def test_a_pool_that_serves_another_pipeline_is_refused(tmp_path: Path):
    path = tmp_path / "computed"
    first = loader_of(path, "one plan")
    with closing(first), closing(iter(first)) as iterator:
        next(iterator)
        other = gm.DataLoader(
            data_source=range(5),
            sampler=gm.SequentialSampler(5, gm.NoSharding()),
            worker_count=1,
            worker_options=ray_options(shared_pool="one plan"),
        )
        with closing(other):
            for _ in range(2):  # the second time, too
                with pytest.raises(PlanError, match="'one plan' serves another pipeline"):
                    next(iter(other))


def scaled_loader(
    scale: int, *, shard: gm.ShardOptions | None = None, source: Any = None
) -> gm.DataLoader:
    def scaled(x: Any) -> Any:
        return scale * x

    return gm.DataLoader(
        data_source=np.arange(40) if source is None else source,
        sampler=gm.IndexSampler(40, shuffle=True, seed=1, num_epochs=1),
        operations=[scaled, gm.Batch(4)],
        shard_options=shard or gm.NoSharding(),
        worker_count=1,
        worker_options=ray_options(shared_pool="alike", idle_timeout_s=1.0),
    )


@pytest.mark.usefixtures("cluster")
def test_pipelines_that_only_look_the_same_are_refused_and_equal_ones_are_not():
    others = [
        scaled_loader(2),
        scaled_loader(1, shard=gm.ShardOptions(1, 2)),
        scaled_loader(1, source=np.arange(40) + 1),
    ]
    with closing(scaled_loader(1)) as first, closing(iter(first)) as iterator:
        start = next(iterator).tolist()
        for other in others:
            with closing(other), pytest.raises(PlanError, match="names, but a function, the value"):
                next(iter(other))
        with closing(scaled_loader(1)) as equal:
            assert next(iter(equal)).tolist() == start


@pytest.mark.usefixtures("cluster")
def test_blocks_of_a_shared_pool_stay_within_its_memory(tmp_path: Path):
    class Wide(gm.Map):
        def map(self, element: Any) -> Any:
            return np.full(2000, element)

    def wide_loader() -> gm.DataLoader:
        return gm.DataLoader(
            data_source=range(3000),
            sampler=gm.SequentialSampler(3000, gm.NoSharding()),
            operations=[Wide(), gm.Batch(10)],
            worker_count=1,
            worker_options=ray_options(shared_pool="wide", shared_pool_bytes=10_000_000),
        )

    with closing(wide_loader()) as slow, closing(iter(slow)) as late:
        firsts = [next(late)[:, 0].tolist()]
        largest = 0
        with closing(wide_loader()) as fast:
            for batch in fast:
                assert batch.shape == (10, 2000)
                largest = max(largest, bytes_in("wide"))
            (worker,) = fast.stats().workers
        firsts += [batch[:, 0].tolist() for batch in late]

    assert 5_000_000 < largest <= 10_000_000
    assert firsts == [[*range(start, start + 10)] for start in range(0, 3000, 10)]
    assert worker.num_blocks >= 3000 // 256
    assert worker.output_bytes > 40_000_000
    assert worker.name.startswith("gristmill pool wide ")


@pytest.mark.usefixtures("cluster")
def test_a_shared_pool_grows_while_a_reader_waits():
    class Slow(gm.Map):
        def map(self, element: Any) -> Any:
            time.sleep(0.004)
            return os.getpid()

    loader = gm.DataLoader(
        data_source=range(10_000),
        sampler=gm.SequentialSampler(10_000, gm.NoSharding()),
        operations=[Slow()],
        worker_count=None,
        read_options=gm.ReadOptions(num_threads=0),
        worker_options=ray_options(shared_pool="growing", max_workers=2),
    )
    pids: set[int] = set()
    with closing(loader), closing(iter(loader)) as iterator:
        for pid in iterator:
            pids.add(pid)
            if len(pids) == 2:
                break

    assert len(pids) == 2


@pytest.mark.usefixtures("cluster")
def test_a_pool_that_ends_while_a_reader_joins_is_replaced(tmp_path: Path):
    class Ending:
        def attach(self, *_: Any) -> None:
            os._exit(0)

    ending = ray.remote(num_cpus=0)(Ending)
    name = "gristmill pool ending"
    ending.options(name=name, namespace="gristmill", lifetime="detached").remote()
    with closing(loader_of(tmp_path / "computed", "ending")) as loader:
        found = [batch.tolist() for batch in loader]
        num_restarts = loader.stats().num_restarts

    assert found == [batch.tolist() for batch in loader_of(tmp_path / "other", "")]
    assert num_restarts == 1
    until(lambda: is_gone("ending"), "the pool ends after its last reader")


@pytest.mark.usefixtures("cluster")
def test_a_shared_pool_without_room_is_an_error_that_says_what_there_is():
    loader = gm.DataLoader(
        data_source=range(10),
        sampler=gm.SequentialSampler(10, gm.NoSharding()),
        worker_count=1,
        worker_options=ray_options(
            shared_pool="no room", resources={"teapot": 2}, start_timeout_s=5.0
        ),
    )
    with closing(loader), pytest.raises(WorkerError, match=r"Each needs CPU 0.25, teapot 2, but"):
        next(iter(loader))


@pytest.mark.usefixtures("cluster")
def test_readers_go_on_when_the_pool_is_killed(tmp_path: Path):
    expected = [batch.tolist() for batch in loader_of(tmp_path / "other", "")]
    loader = loader_of(tmp_path / "computed", "killed")
    with closing(loader), closing(iter(loader)) as iterator:
        stream = [next(iterator).tolist() for _ in range(20)]
        ray.kill(broker_of("killed"))
        stream += [batch.tolist() for batch in iterator]

    assert stream == expected


PROGRAM = """
import sys
import gristmill as gm

class Pair:
    def __init__(self, x):
        self.x = x

loader = gm.DataLoader(
    data_source=range(1000),
    sampler=gm.IndexSampler(1000, shuffle=True, seed=1, num_epochs=1),
    operations=[lambda x: Pair(x)],
    worker_count=1,
    worker_options=gm.RayOptions(
        address=sys.argv[1], shared_pool="programs", num_cpus=0.25, idle_timeout_s=1.0,
        start_timeout_s=30.0,
    ),
)
elements = list(loader)
assert all(type(element) is Pair for element in elements)
print([element.x for element in elements])
"""


KILLED_PROGRAM = """
import sys
import gristmill as gm

loader = gm.load(
    range(10**7),
    worker_count=1,
    worker_options=gm.RayOptions(
        address=sys.argv[1], shared_pool="of the killed", num_cpus=0.25, start_timeout_s=30.0
    ),
)
iterator = iter(loader)
next(iterator)
print("computing", flush=True)
for _ in iterator:
    pass
"""


def test_a_pool_ends_soon_after_its_last_program_was_killed(cluster: Any):
    command = [sys.executable, "-c", KILLED_PROGRAM, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "computing\n"
        assert not is_gone("of the killed")
        program.kill()

    until(lambda: is_gone("of the killed"), "the pool ends", seconds=40.0)


def test_programs_share_a_pool_even_for_classes_of_the_script(cluster: Any, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), cluster.address]
    programs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = [program.communicate(timeout=110) for program in programs]

    assert [program.returncode for program in programs] == [0, 0], ends
    assert ends[0][0] == ends[1][0]
    assert len(ends[0][0]) > 1000
    until(lambda: is_gone("programs"), "the pool ends after its last reader")
