"""What worker processes have of the program besides the plan, to notice when it is out of date.

A process has the environment and the folder that the program had when it was started, and the code
that a module had when it was imported. Once the program has others, it must not be used for another
iterator: the stream would depend on whether workers were kept.
"""

import contextlib
import json
import os
import sys
from types import ModuleType
from typing import cast, final

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""With them, JAX would join a distributed job. Ray actors do not have them either."""
_PARENT_VARIABLES = ("GRISTMILL_MONITOR",)
"""Views of the parent show what its workers do."""
_VOLATILE_VARIABLES = ("PYTEST_CURRENT_TEST",)
"""They change all the time, and each change would require another fork server."""


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker.

    If the user's code imports JAX in a worker, JAX sees the CPU only and joins no distributed job.
    There are as many workers as cores, so numerical libraries get one thread each: more would
    compete with the other workers.
    """
    left_out = (*JAX_VARIABLES, *_PARENT_VARIABLES, *_VOLATILE_VARIABLES)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    for name in _THREAD_VARIABLES:
        environment.setdefault(name, "1")
    # A set of strings iterates in the same order in all workers.
    environment.setdefault("PYTHONHASHSEED", "0")
    environment["JAX_PLATFORMS"] = "cpu"
    entries: list[object] = list(sys.path)  # programs insert `Path` objects, and even others
    path = [
        os.fspath(cast("str | os.PathLike[str]", entry))
        for entry in entries
        if isinstance(entry, str | os.PathLike)
    ]
    environment["GRISTMILL_WORKER_PATH"] = json.dumps(path)
    return environment


@final
class LoadedModules:
    """The modules that this process has loaded, to notice when one of them is loaded again.

    `importlib.reload` does that, and so does the autoreload of a notebook after a file was changed.
    Processes that have imported the module before still have its old code.
    """

    def __init__(self) -> None:
        self._specs: dict[str, object] = {}
        self.have_changed()

    def have_changed(self) -> bool:
        """Return whether a module was loaded again since the first call that found it."""
        # A module that is loaded again gets another specification, also in place.
        known = self._specs
        found = {name: _spec_of(module) for name, module in list(sys.modules.items())}
        return any(known.setdefault(name, spec) is not spec for name, spec in found.items())


def _spec_of(module: object) -> object:
    """Return the specification of a module, without loading it if it is a lazy one."""
    if not issubclass(type(module), ModuleType):
        return None
    return object.__getattribute__(module, "__dict__").get("__spec__")


@final
class InheritedState:
    """What worker processes that start now have of this program."""

    def __init__(self) -> None:
        self._environment = worker_environment()
        self._folder = _identity_of_folder()
        self._modules = LoadedModules()

    @property
    def is_current(self) -> bool:
        """Whether workers that started later would have the same."""
        return (
            worker_environment() == self._environment
            and _identity_of_folder() == self._folder
            and not self._modules.have_changed()
        )


def _identity_of_folder() -> tuple[int, int] | None:
    """Return what distinguishes the current folder from others, also if it was deleted."""
    with contextlib.suppress(OSError):
        status = os.stat(".")
        return status.st_dev, status.st_ino
    return None
