"""Where the processes of a feeding write what the others read."""

import hashlib
import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any, Protocol, final

from gristmill._extras import load_extra
from gristmill.errors import FeedError

_ANSWERS_IN_A_FOLDER = 64


class Board(Protocol):
    """Where the processes of one feeding write what the others read."""

    def open(self, processes: Collection[int]) -> None:
        """Begin, among these."""
        ...

    def post(self, text: str) -> None:
        """Write what this process says, over what it said before."""
        ...

    def read(self) -> Mapping[int, str]:
        """Read what each of them says."""
        ...

    def answer(self, step: int, text: str) -> bool:
        """Write the answer to a step, unless it has one: then say no."""
        ...

    def wait(self, step: int, seconds: float) -> str | None:
        """Wait for the answer to a step, for so long at most."""
        ...

    def forget(self, step: int) -> None:
        """Drop the answers to the steps before this one, which all have read."""
        ...

    def show(self, thing: object) -> None:
        """Let the others have something that is the same in all."""
        ...

    def shown(self) -> Any:
        """Give what one of them has shown."""
        ...

    def leave(self) -> None:
        """Say that this process writes and reads no more."""
        ...


_numbers: defaultdict[str, Callable[[], int]] = defaultdict(lambda: count().__next__)
"""Each feeding has its own among those of the same processes, which begin them in one order.

Others may have begun more: those among some of the processes.
"""

_to_clear: dict[str, int] = {}
"""The folders that this process clears, each when so many processes have left it."""


@final
class JobBoard:
    """The key-value store of the job that `jax.distributed.initialize` made."""

    def __init__(self) -> None:
        jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
        distributed: Any = load_extra("jax._src.distributed", extra="jax", wanted_by="`feed`")
        self._client: Any = distributed.global_state.client
        if self._client is None:
            raise FeedError(
                "The batches are shared out among several processes, which have to agree on where "
                "the data ends. Call `jax.distributed.initialize()` at the start of the program."
            )
        self._me: int = jax.process_index()
        self._folder = ""

    def open(self, processes: Collection[int]) -> None:
        """Begin in a folder of its own, which the first of them clears when all have left it."""
        self._clear()
        who = hashlib.sha256(json.dumps(sorted(processes)).encode()).hexdigest()[:12]
        self._folder = f"gristmill/feed/{who}/{_numbers[who]()}"
        if self._me == min(processes):
            _to_clear[self._folder] = len(processes)

    def post(self, text: str) -> None:
        """Write what this process says."""
        self._client.key_value_set(f"{self._folder}/said/{self._me}", text, allow_overwrite=True)

    def read(self) -> Mapping[int, str]:
        """Read what each of them says."""
        found = self._client.key_value_dir_get(f"{self._folder}/said/")
        return {int(key.rpartition("/")[2]): text for key, text in found}

    def answer(self, step: int, text: str) -> bool:
        """Write the answer to a step, unless it has one."""
        try:
            self._client.key_value_set(self._answer_to(step), text)
        except RuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise
        return True

    def wait(self, step: int, seconds: float) -> str | None:
        """Wait for the answer to a step."""
        try:
            return self._client.blocking_key_value_get(self._answer_to(step), int(1000 * seconds))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def forget(self, step: int) -> None:
        """Drop the answers to the steps before this one, a folder at a time."""
        number, rest = divmod(step, _ANSWERS_IN_A_FOLDER)
        if number > 0 and rest == 0:
            self._client.key_value_delete(f"{self._folder}/answers/{number - 1}/")

    def show(self, thing: object) -> None:
        """Let the others have something that is the same in all."""
        pickled = pickle.dumps(thing)
        self._client.key_value_set_bytes(f"{self._folder}/shown", pickled, allow_overwrite=True)

    def shown(self) -> Any:
        """Give what one of them has shown."""
        return pickle.loads(self._client.key_value_try_get_bytes(f"{self._folder}/shown"))

    def leave(self) -> None:
        """Say that this process writes and reads no more."""
        self._client.key_value_set(f"{self._folder}/left/{self._me}", "", allow_overwrite=True)

    def _answer_to(self, step: int) -> str:
        return f"{self._folder}/answers/{step // _ANSWERS_IN_A_FOLDER}/{step}"

    def _clear(self) -> None:
        for folder, num_processes in list(_to_clear.items()):
            if len(self._client.key_value_dir_get(f"{folder}/left/")) == num_processes:
                self._client.key_value_delete(f"{folder}/")
                del _to_clear[folder]
