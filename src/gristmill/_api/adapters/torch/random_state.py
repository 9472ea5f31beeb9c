"""Handles items that draw from the global random generators of PyTorch, NumPy and `random`.

Such an item depends on what was drawn before it, so the stream would depend on the number of
workers. With a seed, each item is read with generators that are seeded for it alone. Without one,
such items are detected and raise an error.
"""

import ctypes
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast, final

import numpy as np

from gristmill._api.adapters.torch.convert import Item, to_numpy
from gristmill._api.adapters.torch.tensor import load_torch
from gristmill._base.trees.tree import leaves_with_paths
from gristmill.errors import SourceError
from gristmill.types import Element

_LOCK = threading.RLock()
"""Held while the global generators are seeded, so that our own threads do not draw from them."""

_CHECK_INTERVAL_SECONDS = 0.05
"""Time spent in reads between two checks. A check takes up to 200 us, as the states it reads are in
no CPU cache, so it runs after reads that took hundreds of times as long."""

_MAX_FALSE_ALARMS = 3
_NUM_TRIAL_SEEDS = 8

_GENERATOR_NAMES = ("`torch`", "`numpy`", "`random`")

_MT19937_BYTES = 624 * 4 + 4

GeneratorStates: TypeAlias = tuple[object, object, object]
"""States of the three global generators, in the order of `_GENERATOR_NAMES`."""


@final
class RandomDrawMonitor:
    """Detects that reading items changes the global generators, and names such an item.

    The generators are compared before and after the first read. From then on it is enough to check
    now and then that they have not changed since the last check. If they have, maybe because the
    user's own program drew from them, they are compared before and after the next read again.

    Args:
        read_one: Reads the item at an index, to find out which item draws.
        description: Names the dataset in the error.
    """

    def __init__(self, read_one: Callable[[int], Item], description: str) -> None:
        self._read_one = read_one
        self._description = description
        self._last: GeneratorStates | None = None
        self._seconds_since_check = 0.0
        self._num_false_alarms = 0

    def read(
        self, read: Callable[[Sequence[int]], list[Item]], indices: Sequence[int]
    ) -> list[Item]:
        """Return the items that `read` returns for `indices`.

        Raises:
            SourceError: If an item depends on the global generators.
        """
        if self._num_false_alarms >= _MAX_FALSE_ALARMS:
            return read(indices)
        last = self._last
        before = _get_generator_states() if last is None else None
        start = time.perf_counter()
        items = read(indices)
        self._seconds_since_check += time.perf_counter() - start
        if before is None and self._seconds_since_check < _CHECK_INTERVAL_SECONDS:
            return items
        after = _get_generator_states()
        if before not in (None, after):
            self._check_not_random(indices)
            # Another thread drew at the same time, or the draws do not affect the items.
            self._num_false_alarms += 1
        self._last = after if after in (before, last) else None
        self._seconds_since_check = 0.0
        return items

    def _check_not_random(self, indices: Iterable[int]) -> None:
        """Raise an error if one of the items draws and its value depends on the draw."""
        with _LOCK, _restore_generators():
            for index in indices:
                before = _get_generator_states()
                self._read_one(index)
                drawn_from = [
                    name
                    for name, one, other in zip(
                        _GENERATOR_NAMES, before, _get_generator_states(), strict=True
                    )
                    if one != other
                ]
                if drawn_from and self._depends_on_seed(index):
                    raise SourceError(
                        f"Item {index} of {self._description} draws from the global generator of "
                        f"{' and of '.join(drawn_from)}, so its value depends on the worker and "
                        "changes after a restart. Pass a `seed` to `from_torch`, which then seeds "
                        "the generators for each item by its index. Or remove the randomness from "
                        "the dataset, and add it with `random_map`."
                    )

    def _depends_on_seed(self, index: int) -> bool:
        values: list[Element] = []
        for seed in range(_NUM_TRIAL_SEEDS):
            _seed_generators(np.random.default_rng(seed))
            values.append(to_numpy(self._read_one(index)))
        return not all(_are_identical(values[0], other) for other in values[1:])


@contextmanager
def seeded_generators(generator: np.random.Generator) -> Generator[None]:
    """Seed the global generators from `generator`, and restore their states on exit."""
    with _LOCK, _restore_generators():
        _seed_generators(generator)
        yield


@contextmanager
def _restore_generators() -> Generator[None]:
    """Restore the states of the global generators on exit."""
    torch = load_torch()
    torch_state = torch.default_generator.get_state()
    numpy_state: Any = np.random.get_state(legacy=False)
    python_state = random.getstate()
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _seed_generators(generator: np.random.Generator) -> None:
    torch_seed, numpy_seed, python_seed = generator.integers(
        2**32, size=3, dtype=np.uint64
    ).tolist()
    load_torch().default_generator.manual_seed(torch_seed)
    np.random.seed(numpy_seed)
    random.seed(python_seed)


def _get_generator_states() -> GeneratorStates:
    torch = sys.modules.get("torch")  # if it is not imported, nothing has drawn from it
    return (
        None if torch is None else torch.default_generator.get_state().numpy().tobytes(),
        _get_numpy_state(),
        random.getstate(),
    )


def _get_numpy_state() -> object:
    """Return the state of NumPy's global generator as the bytes of its memory.

    Its `state` attribute is built number by number, which takes longer than everything else here.
    """
    bits = cast(Any, np.random).get_bit_generator()
    if type(bits) is np.random.MT19937:
        return ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES)
    return repr(bits.state)


def _are_identical(one: Element, other: Element) -> bool:
    """Compare two elements, arrays bit by bit."""
    leaves, others = (list(leaves_with_paths(element)) for element in (one, other))
    return len(leaves) == len(others) and all(map(_are_identical_leaves, leaves, others))


def _are_identical_leaves(one: tuple[str, object], other: tuple[str, object]) -> bool:
    (path, leaf), (other_path, other_leaf) = one, other
    if path != other_path or type(leaf) is not type(other_leaf):
        return False
    # Objects of a class without `__eq__` are equal only to themselves, so pickles are compared.
    return pickle.dumps(leaf) == pickle.dumps(other_leaf)
