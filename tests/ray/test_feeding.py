"""Two processes of one `jax.distributed` job, each fed by the same Ray cluster."""

import socket
import subprocess
import sys
from typing import Any

import numpy as np

import gristmill as gm

PROGRAM = """
import sys
import jax
import numpy as np

coordinator, number, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(coordinator, num_processes=2, process_id=number)
import gristmill as gm

loader = gm.DataLoader(
    data_source=gm.ArraySource(np.arange(96, dtype=np.float32)),
    sampler=gm.IndexSampler(96, shuffle=True, seed=3, num_epochs=1),
    operations=[lambda x: 2 * x, gm.Batch(8)],
    shard_options=gm.ShardByJaxProcess(),
    worker_count=1,
    worker_options=gm.RayOptions(address=address, num_cpus=0.25, start_timeout_s=30.0),
)
mesh = jax.sharding.Mesh(jax.devices(), ("data",))
rows = []
with gm.feed(loader, mesh) as batches:
    for batch in batches:
        assert batch.shape == (16,), batch.shape
        rows.append([shard.data.tolist() for shard in batch.addressable_shards])
loader.close()
print(rows)
"""


def double(x: Any) -> Any:
    return 2 * x


def rows_without_ray(number: int) -> list[list[list[float]]]:
    loader = gm.DataLoader(
        data_source=gm.ArraySource(np.arange(96, dtype=np.float32)),
        sampler=gm.IndexSampler(96, shuffle=True, seed=3, num_epochs=1),
        operations=[double, gm.Batch(8)],
        shard_options=gm.ShardOptions(number, 2),
    )
    return [[batch.tolist()] for batch in loader]


def test_two_hosts_are_fed_by_one_cluster(cluster: Any):
    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, coordinator, str(number), cluster.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    ends = [program.communicate(timeout=110) for program in programs]

    for number, (output, errors) in enumerate(ends):
        assert output.strip() == str(rows_without_ray(number)), errors[-2000:]
