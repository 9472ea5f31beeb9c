"""The class of the actors, which is sent by value.

Another machine may have another version of gristmill, or none. So an actor imports it only after
it has compared the versions.
"""

import importlib
import os
import platform
import sys
from typing import Any

from gristmill._engine.executors.processes.inherited_state import JAX_VARIABLES

_VERSIONS = {
    "NumPy": ("numpy.version", "version"),
    "gristmill": ("gristmill._base.version", "VERSION"),
}
"""Where packages have their versions."""


def make_actor_class() -> type:
    """Return the class.

    It is defined in a function, so that cloudpickle sends its code, not the name of its module.
    """
    jax_variables, packages = JAX_VARIABLES, _VERSIONS  # by value, too

    class GristmillWorker:
        """An actor that computes ranges of positions."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._worker: Any = None

        def __repr__(self) -> str:  # what Ray puts before each line that the actor prints
            return self._name

        def start(
            self, versions: dict[str, str], path: list[str], payload: list[Any], init: bytes
        ) -> bytes | dict[str, str]:
            """Compare versions and load the plans.

            Args:
                versions: The versions that this machine has to have, by name.
                path: Where the parent finds modules.
                payload: A reference to the plans.
                init: A pickled `ActorInit`.

            Returns:
                A pickled `Started`, or the versions and the names of this machine if they differ.
            """
            for variable in jax_variables:
                os.environ.pop(variable, None)
            os.environ.pop("GRISTMILL_MONITOR", None)  # views of the parent show what it does
            os.environ["JAX_PLATFORMS"] = "cpu"
            sys.path.extend(entry for entry in path if entry not in sys.path)
            found = {"Python": platform.python_version()}
            for name, (module, attribute) in packages.items():
                try:
                    found[name] = getattr(importlib.import_module(module), attribute)
                except ImportError:
                    found[name] = "none"
            if found != versions:
                ray: Any = importlib.import_module("ray")
                node_id = ray.get_runtime_context().get_node_id()
                node = f"{ray.util.get_node_ip_address()}/{node_id[:8]}"
                return {**found, "node_id": node_id, "node": node}
            actor_main = importlib.import_module("gristmill._engine.executors.ray.actor_main")
            self._worker, started = actor_main.start(payload, init)
            return started

        def compute(self, job: int, start: int, stop: int) -> tuple[bytes, Any]:
            """Return the header and the buffers of a block."""
            return self._worker.compute(job, range(start, stop))

        def probe(self, job: int, position: int, record: int | None) -> None:
            """Compute one record or element of a range that has killed an actor."""
            self._worker.probe(job, position, record)

    return GristmillWorker
