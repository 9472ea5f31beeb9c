"""The names of Grain's `python.experimental` module: those of `gristmill.experimental`."""

from gristmill import experimental as _experimental
from gristmill.experimental import *  # noqa: F403

__all__ = _experimental.__all__  # pyright: ignore[reportUnsupportedDunderAll]
