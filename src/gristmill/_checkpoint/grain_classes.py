"""Make iterators virtual subclasses of Grain's, in a program that uses both packages.

Grain's checkpoint handler, and Orbax's, ask whether an iterator is a `grain.DatasetIterator` to
know if its state is a dict or bytes. Grain's class is an abstract base class, so classes can be
registered with it. That must wait until the program has imported Grain, which gristmill never does.
The first moment at which it matters is the check itself: `isinstance` of an abstract base class
reads the attribute `__class__`, so a property of that name can register the class in time, whether
Grain was imported before the iterator was made or after.
"""

import sys
from abc import ABCMeta
from typing import Any

_registered: set[tuple[type, type]] = set()


def register_with_grain(cls: type, name: str) -> None:
    """Register a class with that of Grain of this name, if the program has imported Grain."""
    grain: Any = sys.modules.get("grain")
    base = getattr(grain, name, None)  # `None` also while Grain is being imported
    if isinstance(base, ABCMeta) and (base, cls) not in _registered:
        _registered.add((base, cls))
        base.register(cls)
