"""A node in a network namespace of its own: real sockets between two addresses, and a slow link."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import gristmill as gm
from tests.ray.clusters import STORE_BYTES, kill_processes_of

HERE, THERE, NAMESPACE, LINK = "10.77.0.1", "10.77.0.2", "gristmill-test", "gristmill0"
SLOW = (
    ["netem", "delay", "10ms", "rate", "200mbit"],
    ["tbf", "rate", "200mbit", "burst", "256kb", "latency", "50ms"],
)
"""Arguments of `tc`: with a delay, or where the kernel lacks that, with a rate only."""


def run(*command: str, is_checked: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=is_checked, timeout=60)


@pytest.fixture
def link() -> Iterator[None]:
    """Connect a namespace to this one, if the machine allows it."""
    if shutil.which("ip") is None or shutil.which("tc") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need `ip`, `tc` (`make network`) and root")
    made = run("ip", "netns", "add", NAMESPACE, is_checked=False)
    if made.returncode:
        pytest.skip(f"this machine allows no network namespace: {made.stderr.strip()}")
    try:
        inside = ["ip", "netns", "exec", NAMESPACE]
        run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
        run("ip", "addr", "add", f"{HERE}/24", "dev", LINK)
        run("ip", "link", "set", LINK, "up")
        run(*inside, "ip", "addr", "add", f"{THERE}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        yield
    finally:
        run("ip", "netns", "del", NAMESPACE, is_checked=False)
        run("ip", "link", "del", LINK, is_checked=False)


def slow_down() -> str:
    """Slow the link down in both directions; return why that is not possible, if so."""
    problem = ""
    for kind in SLOW:
        added = run("tc", "qdisc", "add", "dev", LINK, "root", *kind, is_checked=False)
        if not added.returncode:
            inside = ["ip", "netns", "exec", NAMESPACE]
            run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", *kind)
            return ""
        problem = added.stderr.strip()
    return problem


PROGRAM = """
import sys
import numpy as np
import gristmill as gm

class Fill(gm.Map):
    def map(self, element):
        return np.full(30_000, element)

loader = gm.DataLoader(
    data_source=range(120),
    sampler=gm.IndexSampler(120, shuffle=True, seed=1, num_epochs=1),
    operations=[Fill(), gm.Batch(4)],
    worker_count=2,
    worker_options=gm.RayOptions(
        address=sys.argv[1], num_cpus=0.5, resources={"there": 1}, start_timeout_s=30.0
    ),
)
with loader:
    print([batch[:, 0].tolist() for batch in loader])
    print(sorted({worker.node.partition("/")[0] for worker in loader.stats().workers}))
"""


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.usefixtures("link")
def test_a_node_behind_a_link_computes_the_same_stream(is_slow: bool):
    if is_slow and (reason := slow_down()):
        pytest.skip(f"this machine cannot slow a link down: {reason}")
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    store = f"--object-store-memory={STORE_BYTES}"
    folder = f"/tmp/gm-ray-{os.getpid()}"
    head = [*ray, "start", "--head", f"--node-ip-address={HERE}", "--port=6399", "--num-cpus=0"]
    run(*head, store, "--include-dashboard=false", f"--temp-dir={folder}")
    try:
        node = [*ray, "start", f"--address={HERE}:6399", f"--node-ip-address={THERE}"]
        inside = ["ip", "netns", "exec", NAMESPACE]
        run(*inside, *node, store, "--num-cpus=2", '--resources={"there": 2}')
        program = [sys.executable, "-c", PROGRAM, f"{HERE}:6399"]
        ended = run(*program, is_checked=False)
        stream, nodes = ended.stdout.splitlines() or [ended.stderr, ""]
    finally:
        kill_processes_of(folder, f"{HERE}:6399")
        shutil.rmtree(folder, ignore_errors=True)

    loader = gm.DataLoader(
        data_source=range(120),
        sampler=gm.IndexSampler(120, shuffle=True, seed=1, num_epochs=1),
        operations=[gm.Batch(4)],
    )
    assert stream == str([batch.tolist() for batch in loader])
    assert nodes == str([THERE])
