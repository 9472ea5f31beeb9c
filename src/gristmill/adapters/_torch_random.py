"""Items that draw from the global generators: of PyTorch, of NumPy and of `random`.

What such an item is depends on who has drawn before it, so a stream of them would depend on the
number of workers. With a seed each item is read with generators of its own; without one, such
items are found and refused.
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

from gristmill._tree import leaves_with_paths
from gristmill.adapters._torch_convert import to_numpy
from gristmill.adapters._torch_tensor import load_torch
from gristmill.errors import SourceError
from gristmill.types import Element

_LOCK = threading.RLock()
"""Who changes the global generators has them alone, as far as it is up to us."""

_SECONDS = 0.05
"""A look at the generators takes up to 200 us, as no cache has what it reads: so it is taken after
reads that took hundreds of times as long."""

_MOST_FALSE_ALARMS = 3
_NUM_SEEDS = 8

_NAMES = ("`torch`", "`numpy`", "`random`")

_MT19937_BYTES = 624 * 4 + 4

Look: TypeAlias = tuple[object, object, object]


@final
class DrawWatch:
    """Notices that reading items changes the global generators, and names such an item.

    The first read is looked at from before and from after. From then on, it is enough to see now
    and then that nothing has changed since the last look; where something has, maybe in the user's
    own program, the next read is looked at from both sides again.
    """

    def __init__(self, read_one: Callable[[int], Any], told: str) -> None:
        self._read_one = read_one
        self._told = told
        self._last: Look | None = None
        self._seconds = 0.0
        self._num_false_alarms = 0

    def read(self, read: Callable[[Sequence[int]], list[Any]], indices: Sequence[int]) -> list[Any]:
        """Read items, unless they turn out to be random."""
        if self._num_false_alarms >= _MOST_FALSE_ALARMS:
            return read(indices)
        last = self._last
        before = _look() if last is None else None
        start = time.perf_counter()
        items = read(indices)
        self._seconds += time.perf_counter() - start
        if before is None and self._seconds < _SECONDS:
            return items
        after = _look()
        if before not in (None, after):
            self._refuse_random(indices)
            self._num_false_alarms += 1  # somebody else drew meanwhile, or it does not matter
        self._last = after if after in (before, last) else None
        self._seconds = 0.0
        return items

    def _refuse_random(self, indices: Iterable[int]) -> None:
        """Raise if one of the items draws, and is another one for it."""
        with _LOCK, _restored():
            for index in indices:
                before = _look()
                self._read_one(index)
                drawn_from = [
                    name
                    for name, one, other in zip(_NAMES, before, _look(), strict=True)
                    if one != other
                ]
                if drawn_from and self._depends_on_seed(index):
                    raise SourceError(
                        f"Item {index} of {self._told} draws from the global generator of "
                        f"{' and of '.join(drawn_from)}, so it would be another one in each worker "
                        "and after each restart. Pass a `seed` to `from_torch`, which is then "
                        "drawn from for each item by its index; or take what is random out of the "
                        "dataset, and add it with `random_map`."
                    )

    def _depends_on_seed(self, index: int) -> bool:
        made: list[Element] = []
        for seed in range(_NUM_SEEDS):
            _seed_all(np.random.default_rng(seed))
            made.append(to_numpy(self._read_one(index)))
        return not all(_is_same(made[0], other) for other in made[1:])


@contextmanager
def drawing_from(generator: np.random.Generator) -> Generator[None]:
    """Have the global generators go on from one of ours, and then as if nothing had been."""
    with _LOCK, _restored():
        _seed_all(generator)
        yield


@contextmanager
def _restored() -> Generator[None]:
    torch: Any = load_torch()
    of_torch = torch.default_generator.get_state()
    of_numpy: Any = np.random.get_state(legacy=False)
    of_python = random.getstate()
    try:
        yield
    finally:
        torch.default_generator.set_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def _seed_all(generator: np.random.Generator) -> None:
    torch: Any = load_torch()
    one, two, three = generator.integers(2**32, size=3, dtype=np.uint64).tolist()
    torch.default_generator.manual_seed(one)
    np.random.seed(two)
    random.seed(three)


def _look() -> Look:
    """Give what tells whether one of the generators has been drawn from."""
    torch: Any = sys.modules.get("torch")  # whose generator nobody has drawn from before
    return (
        None if torch is None else torch.default_generator.get_state().numpy().tobytes(),
        _look_at_numpy(),
        random.getstate(),
    )


def _look_at_numpy() -> object:
    """Give the state of NumPy's global generator, as bytes of its memory.

    Its `state` would be made number by number, which takes longer than all the rest.
    """
    bits = cast(Any, np.random).get_bit_generator()
    if type(bits) is np.random.MT19937:
        return ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES)
    return repr(bits.state)


def _is_same(one: Element, other: Element) -> bool:
    """Compare two readings of an item, bit by bit where they are arrays."""
    leaves, others = (list(leaves_with_paths(item)) for item in (one, other))
    return len(leaves) == len(others) and all(map(_is_same_leaf, leaves, others))


def _is_same_leaf(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    (path, leaf), (other_path, other_leaf) = one, other
    if path != other_path or type(leaf) is not type(other_leaf):
        return False
    # Objects of a class without an `__eq__` are equal to nothing but themselves.
    return pickle.dumps(leaf) == pickle.dumps(other_leaf)
