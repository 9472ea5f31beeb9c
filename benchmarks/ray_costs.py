"""Measure what Ray costs the consumer, the head and the broker, for `ray_scale`.

All of it as CPU time of the process in question, from /proc, so that other programs on the machine
matter little; only the transfer between nodes is measured as elapsed time.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import gristmill
from benchmarks._ray_cluster import connect_cluster

LARGE_BYTES = 4_000_000


def cpu_s(pid: int | str = "self") -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pid_of(word: str) -> int:
    """Return the newest process whose command line contains a word."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if word.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return max(found)


def consumer_s() -> float:
    """Return the CPU time of the consumer for a block of a few hundred bytes."""
    num_batches = 800
    loader = gristmill.DataLoader(
        data_source=range(256 * num_batches),
        sampler=gristmill.SequentialSampler(256 * num_batches, gristmill.NoSharding()),
        operations=[lambda x: sum(range(20_000)) + x, gristmill.Batch(256)],
        worker_count=1,
        worker_options=gristmill.RayOptions(num_cpus=0.5),
    )
    with loader, iter(loader) as iterator:
        for _ in range(8):
            next(iterator)
        before, begin = iterator.stats().workers[0].num_blocks, cpu_s()
        for _ in range(150):
            next(iterator)
        return (cpu_s() - begin) / (iterator.stats().workers[0].num_blocks - before)


def main() -> None:
    """Print the costs."""
    import ray

    cluster = connect_cluster(on_other_node=True)
    head = pid_of("gcs_server")

    @ray.remote(num_cpus=0.1)
    class Idle:
        def work(self, num_bytes: int) -> Any:
            return np.zeros(num_bytes, np.uint8)

    begin, num = cpu_s(head), 10
    actors = [Idle.remote() for _ in range(num)]
    ray.get([actor.work.remote(1) for actor in actors])
    print(f"actor_start_head_s {(cpu_s(head) - begin) / num:.5f}")

    internal_kv = ray.experimental.internal_kv
    begin, num = cpu_s(head), 5000
    for _ in range(num):
        internal_kv._internal_kv_exists(b"gristmill")  # noqa: SLF001 - as the monitor does
    print(f"ping_head_s {(cpu_s(head) - begin) / num:.6f}")

    for _ in range(2):
        num_nodes, begin, num = len(ray.nodes()), cpu_s(head), 2000
        for _ in range(num):
            ray.available_resources()  # as the monitor of a loader with `worker_count=None` does
        print(f"room_ping_head_s with {num_nodes} nodes {(cpu_s(head) - begin) / num:.6f}")
        if num_nodes == 2:
            for _ in range(3):
                cluster.add_node(num_cpus=0, object_store_memory=80 << 20)

    refs = [actors[0].work.remote(LARGE_BYTES) for _ in range(40)]
    ray.wait(refs, num_returns=len(refs), fetch_local=False)
    began = time.perf_counter()
    arrays = ray.get(refs)
    print(f"pull_bytes_per_s {40 * LARGE_BYTES / (time.perf_counter() - began):.3g}")

    target = np.empty(LARGE_BYTES, np.uint8)
    began = time.process_time()
    for array in arrays:
        target[...] = array
    print(f"copy_bytes_per_s {40 * LARGE_BYTES / (time.process_time() - began):.3g}")
    for actor in actors:
        ray.kill(actor)

    print(f"message_s {consumer_s():.5f}")

    loader = gristmill.DataLoader(
        data_source=range(200_000),
        sampler=gristmill.SequentialSampler(200_000, gristmill.NoSharding()),
        operations=[gristmill.Batch(256)],
        worker_count=1,
        worker_options=gristmill.RayOptions(num_cpus=0.5, shared_pool="costs"),
    )
    with loader:
        iterator = iter(loader)
        next(iterator)
        broker = ray.get_actor("gristmill pool costs", namespace="gristmill")
        before = ray.get(broker.describe.remote())["num_computed"]
        begin, own = cpu_s(pid_of("ray::Broker")), cpu_s()
        for _ in iterator:
            pass
        num = ray.get(broker.describe.remote())["num_computed"] - before
        print(f"broker_call_s {(cpu_s(pid_of('ray::Broker')) - begin) / num:.5f}")
        print(f"consumer of a shared pool, s per block: {(cpu_s() - own) / num:.5f}")


if __name__ == "__main__":
    main()
