"""Recognise objects of Grain, and let programs for Grain recognise those of gristmill.

Neither direction imports Grain. A program that passes an object of Grain has imported it, and
`is_from_grain` compares the names of its classes.

In the other direction, Grain's checkpoint handler, Orbax's and Keras ask whether an object is a
`grain.DatasetIterator` or a `grain.MapDataset`. These are abstract base classes, so classes can be
registered with them, once the program has imported Grain. `isinstance` of an abstract base class
reads the attribute `__class__`. A property of that name registers the class at that moment, so it
does not matter whether Grain was imported before or after the object was created.

Keras looks at names first: a class of the object's `__mro__` must have the name of Grain's class,
and be from a module with "grain" in its name.
"""

import sys
from abc import ABCMeta
from types import ModuleType
from typing import Any, ClassVar

_NOT_IMPORTED = ModuleType("grain")


class GrainLookalike:
    """Makes instances of its subclasses instances of a class of Grain, once Grain is imported."""

    _grain_class: ClassVar[str] = ""
    """The class of Grain, by its name in `grain`; none, if empty."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - also a setter
        if self._grain_class:
            # `getattr` would import Grain in a worker, where its module may be a lazy one.
            names = object.__getattribute__(sys.modules.get("grain", _NOT_IMPORTED), "__dict__")
            theirs = names.get(self._grain_class)
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


def is_from_grain(value: object, class_name: str) -> bool:
    """Return whether `value` is an instance or a subclass of Grain's class `class_name`.

    Classes are compared by name, so Grain need not be installed: a caller that passes such an
    object has already imported it.
    """
    classes = (value if isinstance(value, type) else type(value)).__mro__
    return any(
        cls.__name__ == class_name and cls.__module__.partition(".")[0] == "grain"
        for cls in classes
    )
