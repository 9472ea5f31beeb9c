"""Messages between the processes that feed one training run."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any, Protocol, final

from gristmill._api.feeding.batch_shapes import dump_shapes, load_shapes
from gristmill._base.extras import load_extra
from gristmill.errors import FeedError
from gristmill.types import Tree

_ANSWERS_PER_FOLDER = 64


class Exchange(Protocol):
    """A store through which the processes of one feed exchange messages."""

    def open(self, processes: Collection[int]) -> None:
        """Start an exchange among `processes`."""
        ...

    def post(self, message: str) -> None:
        """Publish the message of this process, instead of its previous one."""
        ...

    def read_posts(self) -> Mapping[int, str]:
        """Return the latest message of each process."""
        ...

    def answer(self, step: int, answer: str) -> bool:
        """Publish the answer to a step, and return true. Return false if there is one already."""
        ...

    def wait_for_answer(self, step: int, timeout_s: float) -> str | None:
        """Return the answer to a step. Return `None` if there is none after `timeout_s`."""
        ...

    def delete_answers(self, *, before: int) -> None:
        """Delete the answers to earlier steps, which all processes have read."""
        ...

    def share(self, value: Tree) -> None:
        """Publish the shapes of batches, which are the same in all processes."""
        ...

    def read_shared(self) -> Tree:
        """Return the shapes that a process has shared."""
        ...

    def leave(self) -> None:
        """Declare that this process reads and writes no more messages."""
        ...


_next_numbers: defaultdict[str, Callable[[], int]] = defaultdict(lambda: count().__next__)
"""A counter of feeds for each set of processes, which start their feeds in the same order.

One counter for all would not do: some processes may take part in feeds that others do not.
"""

_num_members: dict[str, int] = {}
"""The folders that this process deletes, with the number of processes that must leave first."""


@final
class JobExchange:
    """An exchange through the key-value store of `jax.distributed`."""

    def __init__(self) -> None:
        jax = load_extra("jax", extra="jax", wanted_by="`feed`")
        distributed = load_extra("jax._src.distributed", extra="jax", wanted_by="`feed`")
        self._client: Any = distributed.global_state.client
        if self._client is None:
            raise FeedError(
                "The batches are sharded over several processes, which have to agree on where the "
                "data ends. Call `jax.distributed.initialize()` at the start of the program."
            )
        self._process: int = jax.process_index()
        self._folder = ""

    def open(self, processes: Collection[int]) -> None:
        """Start in a new folder. The first process deletes it after all have left."""
        self._delete_left_folders()
        members = hashlib.sha256(json.dumps(sorted(processes)).encode()).hexdigest()[:12]
        self._folder = f"gristmill/feed/{members}/{_next_numbers[members]()}"
        if self._process == min(processes):
            _num_members[self._folder] = len(processes)

    def post(self, message: str) -> None:
        key = f"{self._folder}/posts/{self._process}"
        self._client.key_value_set(key, message, allow_overwrite=True)

    def read_posts(self) -> Mapping[int, str]:
        found = self._client.key_value_dir_get(f"{self._folder}/posts/")
        return {int(key.rpartition("/")[2]): message for key, message in found}

    def answer(self, step: int, answer: str) -> bool:
        try:
            self._client.key_value_set(self._answer_key(step), answer)
        except RuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise
        return True

    def wait_for_answer(self, step: int, timeout_s: float) -> str | None:
        key = self._answer_key(step)
        try:
            return self._client.blocking_key_value_get(key, int(1000 * timeout_s))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def delete_answers(self, *, before: int) -> None:
        """Delete the answers to earlier steps, one folder at a time."""
        number, rest = divmod(before, _ANSWERS_PER_FOLDER)
        if number > 0 and rest == 0:
            self._client.key_value_delete(f"{self._folder}/answers/{number - 1}/")

    def share(self, value: Tree) -> None:
        key = f"{self._folder}/shared"
        self._client.key_value_set(key, dump_shapes(value), allow_overwrite=True)

    def read_shared(self) -> Tree:
        return load_shapes(self._client.key_value_try_get(f"{self._folder}/shared"))

    def leave(self) -> None:
        key = f"{self._folder}/left/{self._process}"
        self._client.key_value_set(key, "", allow_overwrite=True)

    def _answer_key(self, step: int) -> str:
        return f"{self._folder}/answers/{step // _ANSWERS_PER_FOLDER}/{step}"

    def _delete_left_folders(self) -> None:
        for folder, num_processes in list(_num_members.items()):
            if len(self._client.key_value_dir_get(f"{folder}/left/")) == num_processes:
                self._client.key_value_delete(f"{folder}/")
                del _num_members[folder]
