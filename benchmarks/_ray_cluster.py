"""A Ray cluster on this machine whose workers are on the node of the program, or on another one."""

import os
from typing import Any

STORE_BYTES = 1 << 30


def start_cluster(*, on_other_node: bool, num_cpus: int = 2) -> str:
    """Start a cluster, connect this process, and return the address. See `connect_cluster`."""
    return connect_cluster(on_other_node=on_other_node, num_cpus=num_cpus).address


def connect_cluster(*, on_other_node: bool, num_cpus: int = 2) -> Any:
    """Start a cluster with CPUs on one node only, connect this process, and return the cluster.

    A node of its own has its own object store: blocks go over a socket from one to the other.
    """
    os.environ.update(RAY_enable_worker_prestart="0", RAY_USAGE_STATS_ENABLED="0")
    import ray
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0 if on_other_node else num_cpus,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        },
    )
    if on_other_node:
        cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE_BYTES)
    ray.init(address=cluster.address, configure_logging=False, log_to_driver=False)
    return cluster
