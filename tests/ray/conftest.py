"""One Ray cluster for all tests of this folder: starting one takes seconds."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ray.clusters import ENVIRONMENT, start_cluster

ray: Any = pytest.importorskip("ray")


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def cluster(_environment: None) -> Iterator[Any]:
    """Return a cluster with two nodes, to which this process is connected."""
    cluster = start_cluster()
    ray.init(address=cluster.address, configure_logging=False, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
