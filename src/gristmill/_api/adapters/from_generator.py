"""Make a dataset of a generator or of any other iterable."""

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from gristmill._api.adapters.generator_stream import GeneratorStream
from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._base.call_site import call_site
from gristmill._plan.nodes.stream import RecordStreamNode
from gristmill.errors import PlanTypeError

T = TypeVar("T")


def from_generator(factory: Callable[[], Iterable[T]]) -> IterDataset[T]:
    """Return a dataset of the elements that a generator yields.

    Each iterator calls `factory`, which must yield the same elements each time. A state counts the
    elements. Restoring it calls `factory` again and discards as many, which takes as long as
    yielding them. An iterator that has `get_state()` and `set_state(state)` is asked for its state
    instead, which must be a value that JSON can store; restoring is then quick.

    The elements are read in order, in this process and never in workers. A source with `__len__`
    and `__getitem__` can be shuffled, and read by workers.

    >>> def count():
    ...     for number in range(5):
    ...         yield number * 10
    >>> list(from_generator(count).batch(2))
    [array([ 0, 10]), array([20, 30]), array([40])]

    Args:
        factory: A function without arguments that returns a new iterable each time, such as a
            generator function, or `lambda: open(path)`.

    Raises:
        PlanTypeError: If `factory` is not a function; for example a generator, which can be read
            only once.
    """
    given = cast(object, factory)
    if not callable(given):
        kind = type(given).__name__
        raise PlanTypeError(
            f"`factory` must be a function that returns an iterable, got a {kind}. Each iterator "
            "calls it for a new one: pass the function that makes it, without calling it."
        )
    name = getattr(given, "__qualname__", type(given).__qualname__).rpartition("<locals>.")[2]
    stream = GeneratorStream(factory, name)
    return PlannedIterDataset(RecordStreamNode(site=call_site(), stream=stream), ())
