"""Whether gristmill replaces Grain in this process."""

import os

VARIABLE = "GRISTMILL_AS_GRAIN"
"""The environment variable that turns it on, here and in every process that inherits it."""


def is_grain_mode() -> bool:
    """Return whether `import grain` imports gristmill in this process.

    The environment variable decides: `import gristmill` reads it, and `gristmill.as_grain()` sets
    it, so that worker processes do the same as the program. The form of the state that `get_state`
    returns depends on this, because programs for Grain rely on it.
    """
    return os.environ.get(VARIABLE, "") not in ("", "0")
