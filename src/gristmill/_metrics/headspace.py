"""Headspace: how fast a training would run if data were free."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from gristmill._base.checks import as_int


@final
@dataclass(frozen=True, kw_only=True)
class Headspace:
    """The speed of a training step that gets the same batch again and again.

    >>> Headspace(num_steps=10, elapsed_s=2.0).steps_per_s
    5.0
    """

    num_steps: int
    """Steps that were measured."""
    elapsed_s: float
    """Time that they took, until their results were computed."""

    @property
    def steps_per_s(self) -> float:
        """Steps per second without any wait for data."""
        return self.num_steps / self.elapsed_s


def measure_headspace(
    step: Callable[[Any], object], batch: object, *, num_steps: int = 10
) -> Headspace:
    """Call a training step with the same batch several times, and measure how long it takes.

    The first call is not measured: JAX compiles in it. Results of JAX are waited for.

    >>> measure_headspace(sum, [1, 2, 3], num_steps=3).num_steps
    3

    Args:
        step: A function of a batch. It must not donate the batch, which it gets several times.
        batch: The batch.
        num_steps: How often to call it.

    Raises:
        PlanError: `num_steps` is less than 1.
    """
    num_steps = as_int("num_steps", num_steps, minimum=1)
    _wait_for(step(batch))
    started_at_s = time.perf_counter()
    results = [step(batch) for _ in range(num_steps)]
    _wait_for(results)
    elapsed_s = time.perf_counter() - started_at_s
    return Headspace(num_steps=num_steps, elapsed_s=max(elapsed_s, 1e-9))


def _wait_for(results: object) -> None:
    """Wait for the devices, if the program uses JAX: its functions return before they finish."""
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        jax.block_until_ready(results)
