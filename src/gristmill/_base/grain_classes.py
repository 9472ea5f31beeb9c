"""Base classes by which programs for Grain recognise the datasets and loaders of gristmill.

Keras takes an object for one of Grain's if a class of its `__mro__` has one of these names and a
module with "grain" in its name. Then it asks `isinstance(dataset, grain.MapDataset)`, which is true
for a virtual subclass.
"""

import sys
from abc import ABCMeta
from typing import Any, ClassVar


class GrainLookalike:
    """Makes the instances of its subclasses instances of a class of Grain, once Grain is imported.

    `isinstance` of an abstract class reads `__class__` of the object. That is the moment to
    register the class: Grain is imported by then, and gristmill neither imports it nor has to know
    when another package does.
    """

    _grain_class: ClassVar[str]
    """The class of Grain, by its name in `grain`."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - also a setter
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
