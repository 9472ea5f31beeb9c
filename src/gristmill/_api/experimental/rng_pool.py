"""Random generators by index, as `MapDataset.random_map` uses them."""

from typing import final

import numpy as np

from gristmill._base.checks import as_int


@final
class RngPool:
    """A pool of random generators, each set to the state of an index.

    A generator is a function of `seed`, `op_seed` and `index`. Resetting a generator is cheaper
    than creating one.

    >>> pool = RngPool(42)
    >>> rng = pool.acquire_rng(1)
    >>> int(rng.integers(100))
    25
    >>> pool.release_rng(rng)

    Args:
        seed: The seed of all generators.

    Raises:
        PlanTypeError: If `seed` is not an integer.
    """

    def __init__(self, seed: int) -> None:
        self._seed = as_int("seed", seed)
        self._first_state = np.random.Philox(self._seed).state
        self._idle: list[np.random.Generator] = []

    def __repr__(self) -> str:
        return f"RngPool({self._seed})"

    def __reduce__(self) -> tuple[type["RngPool"], tuple[int]]:
        return RngPool, (self._seed,)

    def acquire_rng(self, index: int, *, op_seed: int = 0) -> np.random.Generator:
        """Return the generator of an index. It belongs to the caller until it is released.

        Args:
            index: The index of an element.
            op_seed: A number that distinguishes the random steps of a pipeline.
        """
        try:
            rng = self._idle.pop()
        except IndexError:
            rng = np.random.Generator(np.random.Philox(0))
        counter = np.array([0, 0, op_seed, index], dtype=np.uint64)
        state = {**self._first_state, "state": {**self._first_state["state"], "counter": counter}}
        rng.bit_generator.state = state
        return rng

    def release_rng(self, rng: np.random.Generator) -> None:
        """Return a generator to the pool.

        Args:
            rng: A result of `acquire_rng`, which the caller must not use any more.
        """
        self._idle.append(rng)
