"""The names of Grain's `python.experimental` module: those of `gristmill.experimental`."""

import typing as _typing

from gristmill import experimental as _experimental
from gristmill._base.lazy import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from gristmill.experimental import *  # noqa: F403
else:
    __getattr__, __dir__ = _lazy_names(
        __name__, {"gristmill.experimental": ", ".join(_experimental.__all__)}
    )

__all__ = _experimental.__all__  # pyright: ignore[reportUnsupportedDunderAll]
