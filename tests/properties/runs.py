"""Run an iterator and take down what it yields."""

from collections.abc import Iterator
from typing import Any

from gristmill import DataLoaderIterator
from tests.properties.trees import plain


def outcome(elements: Iterator[Any]) -> list[Any]:
    """Return the elements in a form that can be compared, and the type of the error that ends them.

    Errors over batches of unlike elements are ours, or NumPy's in the reference: both `ValueError`.
    """
    seen: list[Any] = []
    try:
        for element in elements:
            seen.append(plain(element))  # noqa: PERF401 - what came before an error counts
    except ValueError:
        seen.append("ValueError")
    return seen


def outcome_with_states(iterator: DataLoaderIterator) -> tuple[list[Any], list[bytes]]:
    """Return the elements and the state after each of them, the one before the first included."""
    seen, states = [], [iterator.get_state()]
    try:
        for element in iterator:
            seen.append(plain(element))
            states.append(iterator.get_state())
    except ValueError:
        seen.append("ValueError")
        states.append(iterator.get_state())
    return seen, states
