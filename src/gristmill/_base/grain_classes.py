"""Let programs for Grain recognise the datasets, loaders and iterators of gristmill.

Grain's checkpoint handler, Orbax's and Keras ask whether an object is a `grain.DatasetIterator` or
a `grain.MapDataset`. These are abstract base classes, so classes can be registered with them. That
must wait until the program has imported Grain, which gristmill never does. The first moment at
which it matters is the check itself: `isinstance` of an abstract base class reads the attribute
`__class__`, so a property of that name can register the class in time, whether Grain was imported
before the object was made or after.

Keras looks at names first: a class of the object's `__mro__` must have the name of Grain's class,
and be from a module with "grain" in its name.
"""

import sys
from abc import ABCMeta
from typing import Any, ClassVar


class GrainLookalike:
    """Makes instances of its subclasses instances of a class of Grain, once Grain is imported."""

    _grain_class: ClassVar[str] = ""
    """The class of Grain, by its name in `grain`; none, if empty."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - also a setter
        if self._grain_class:
            theirs = getattr(sys.modules.get("grain"), self._grain_class, None)
            if isinstance(theirs, ABCMeta):
                theirs.register(type(self))  # does nothing if it is a subclass already
        return type(self)


class MapDataset(GrainLookalike):
    """Marks a class as a `MapDataset` of Grain."""

    _grain_class = "MapDataset"


class IterDataset(GrainLookalike):
    """Marks a class as an `IterDataset` of Grain."""

    _grain_class = "IterDataset"


class DataLoader(GrainLookalike):
    """Marks a class as a `DataLoader` of Grain.

    Grain's `DataLoader` is not abstract, so no other class can be registered with it. As an
    `IterDataset`, a loader has the one method that Keras calls, `map`.
    """

    _grain_class = "IterDataset"
