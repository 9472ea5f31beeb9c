"""Random generators by index, as the random steps of a dataset get them."""

from typing import final

import numpy as np

from gristmill._check import as_int


@final
class RngPool:
    """Generators that are used again and again, each time set to what an index says.

    >>> pool = RngPool(42)
    >>> rng = pool.acquire_rng(1)
    >>> int(rng.integers(100))
    25
    >>> pool.release_rng(rng)
    """

    def __init__(self, seed: int) -> None:
        self._seed = as_int("seed", seed)
        self._first_state = np.random.Philox(self._seed).state
        self._idle: list[np.random.Generator] = []

    def __reduce__(self) -> tuple[type["RngPool"], tuple[int]]:
        return RngPool, (self._seed,)

    def acquire_rng(self, index: int, *, op_seed: int = 0) -> np.random.Generator:
        """Give the generator of an index, for the caller alone until it is released."""
        try:
            rng = self._idle.pop()
        except IndexError:
            rng = np.random.Generator(np.random.Philox(0))
        words = np.array([0, 0, op_seed, index], dtype=np.uint64)
        state = {**self._first_state, "state": {**self._first_state["state"], "counter": words}}
        rng.bit_generator.state = state
        return rng

    def release_rng(self, rng: np.random.Generator) -> None:
        """Take a generator back."""
        self._idle.append(rng)
