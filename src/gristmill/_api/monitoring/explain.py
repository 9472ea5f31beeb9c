"""Explain the run of an iterator, and measure the training step that it feeds."""

import importlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gristmill._metrics.stats import Stats
from gristmill.errors import PlanError, PlanTypeError

if TYPE_CHECKING:
    from gristmill._metrics.explanation import Explanation
    from gristmill._metrics.headspace import Headspace


T = TypeVar("T")


class _Resumable(Protocol):
    """An iterator that can return to a position."""

    def __next__(self) -> Any: ...

    def get_state(self) -> Any: ...

    def set_state(self, state: Any, /) -> None: ...


def explain_run(
    stats: Stats, *, is_dataset: bool, headspace: "Headspace | None" = None
) -> "Explanation":
    """Return the explanation of statistics. Most runs have none, so it is imported here."""
    module: Any = importlib.import_module("gristmill._metrics.explanation")
    return module.explain_stats(stats, is_dataset=is_dataset, headspace=headspace)


def explain_iterator(
    iterator: _Resumable,
    stats: Stats,
    *,
    headspace: Callable[[Any], object] | None,
    num_steps: int,
    is_dataset: bool,
) -> "Explanation":
    """Return the explanation of what an iterator did.

    Args:
        iterator: The iterator. Its position is the same afterwards.
        stats: What it did.
        headspace: A training step to measure with the next batch, if any.
        num_steps: How often to call it.
        is_dataset: Whether settings are named as those of a dataset, not those of a loader.
    """
    _check_headspace(headspace)
    if headspace is None:
        return explain_run(stats, is_dataset=is_dataset)
    state = iterator.get_state()
    try:
        batch = next(iterator)
    except StopIteration:
        raise PlanError(
            "`headspace` needs a batch, and the iterator has none left. Measure before the end, "
            "or with a new iterator."
        ) from None
    finally:
        iterator.set_state(state)
    measured = _measure(headspace, batch, num_steps=num_steps)
    return explain_run(stats, is_dataset=is_dataset, headspace=measured)


def explain_dataset(
    dataset: Any,
    *,
    max_s: float,
    headspace: Callable[[Any], object] | None = None,
    num_steps: int = 10,
) -> "Explanation":
    """Iterate over a dataset for some seconds, and return the explanation of that.

    Args:
        dataset: The dataset.
        max_s: After how many seconds to stop.
        headspace: A training step to measure with the last element, if any.
        num_steps: How often to call it.

    Raises:
        PlanError: `max_s` is not positive, or there is no element for `headspace`.
    """
    _check_headspace(headspace)
    with _iterated(dataset, max_s) as (iterator, elements):
        stats = iterator.stats()
    if headspace is None:
        return explain_run(stats, is_dataset=True)
    if not elements:
        raise PlanError("`headspace` needs an element, and the dataset has none.")
    measured = _measure(headspace, elements[0], num_steps=num_steps)
    return explain_run(stats, is_dataset=True, headspace=measured)


def run_dataset(dataset: Any, view: Callable[[Any], T], *, max_s: float) -> T:
    """Iterate over a dataset for some seconds, and return a view of what the iterator did.

    Args:
        dataset: The dataset.
        view: Makes the view of the iterator, before that is closed.
        max_s: After how many seconds to stop.

    Raises:
        PlanError: `max_s` is not positive.
    """
    with _iterated(dataset, max_s) as (iterator, _):
        return view(iterator)


@contextmanager
def _iterated(dataset: Any, max_s: float) -> Generator[tuple[Any, list[Any]]]:
    """Yield an iterator that has run for some seconds, and its last element, if any."""
    if not max_s > 0:
        raise PlanError(f"`max_s` must be greater than 0 seconds, got {max_s}.")
    ends_at = time.perf_counter() + max_s
    elements: list[Any] = []
    with iter(dataset) as iterator:
        for element in iterator:
            elements = [element]
            if time.perf_counter() > ends_at:
                break
        yield iterator, elements


def _check_headspace(headspace: object) -> None:
    if headspace is not None and not callable(headspace):
        raise PlanTypeError(
            f"`headspace` must be a function of a batch, got {headspace!r:.100}. Pass your "
            "training step."
        )


def _measure(headspace: Callable[[Any], object], batch: object, *, num_steps: int) -> "Headspace":
    module: Any = importlib.import_module("gristmill._metrics.headspace")
    return module.measure_headspace(headspace, batch, num_steps=num_steps)
