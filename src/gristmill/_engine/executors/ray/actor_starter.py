"""Start actors: where they run, what they are called, and what they load."""

import itertools
import pickle
import platform
import sys
import uuid
from collections.abc import Collection
from typing import Any, final

import numpy as np

from gristmill._base.version import VERSION
from gristmill._engine.executors.ray.actor_class import make_actor_class
from gristmill._engine.executors.ray.cluster.runtime_env import for_actor
from gristmill._engine.executors.ray.messages import ActorInit
from gristmill._engine.executors.ray.stored_plan import StoredPlan
from gristmill._engine.executors.serialization.log_relay import relay_settings
from gristmill.options import RayOptions


@final
class ActorStarter:
    """Starts the actors of a pool, without waiting for them.

    Args:
        ray: The module, connected to the cluster.
        plan: What they load.
        options: What they reserve, and their runtime environment.
        name: What their names begin with.
    """

    def __init__(self, ray: Any, plan: StoredPlan, options: RayOptions, name: str) -> None:
        self._plan = plan
        self._options = options
        self._name = f"gristmill {name} {uuid.uuid4().hex[:6]}"  # names of actors are unique
        self._generations = itertools.count()
        self._actor_class = ray.remote(make_actor_class())
        self._runtime_env = for_actor(options.runtime_env)

    def create(self, number: int, *, avoided: Collection[str]) -> tuple[str, Any]:
        """Create an actor, on another node than those of the others where possible.

        Ray restarts no actor and repeats no call: the pool does, at once.

        Args:
            number: The number of the worker.
            avoided: Nodes that it must not run on.

        Returns:
            The name of the worker, and the handle of the actor.
        """
        options = self._options
        name = f"{self._name} worker {number}"
        selector = {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"}
        handle = self._actor_class.options(
            name=f"{name}.{next(self._generations)}",
            num_cpus=options.num_cpus,
            num_gpus=0,
            resources=dict(options.resources),
            runtime_env=self._runtime_env,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            label_selector=selector if avoided else None,
        ).remote(name)
        return name, handle

    def load(self, handle: Any, number: int, *, num_workers: int) -> Any:
        """Let an actor load the plans; return the call."""
        entries: list[Any] = sys.path
        path = [entry for entry in entries if isinstance(entry, str) and entry]
        init = ActorInit(number, num_workers, self._plan.pytrees, relay_settings())
        return handle.start.remote(versions(), path, [self._plan.payload], pickle.dumps(init))


def versions() -> dict[str, str]:
    """Return the versions that all nodes have to have."""
    return {"Python": platform.python_version(), "NumPy": np.__version__, "gristmill": VERSION}
