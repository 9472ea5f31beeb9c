"""Options of the whole process, under the names that they have in Grain."""

import logging
from collections.abc import Mapping
from typing import Any, Final, final

logger = logging.getLogger("gristmill")

_DEFAULTS: Final[Mapping[str, Any]] = {
    "py_dataset_visualization_output_dir": None,
    "py_debug_mode": False,
    "py_relay_sigterm_to_main": False,
    "py_traceback_filtering": "auto",
    "tf_interleaved_shuffle": False,
    "tf_interleaved_shuffle_block_size": 10,
    "tf_interleaved_shuffle_parallel_blocks": 10,
    "tf_lookup_batch_size": 100,
    "tf_lookup_fast_warmup": False,
    "tf_lookup_num_parallel_calls": -1,
    "tf_optimized_sequential_read": False,
    "tf_prefetch_buffer_size": -1,
}
_EFFECTIVE = frozenset({"py_debug_mode"})


@final
class Config:
    """Options of the whole process. Set one with `update`.

    - `py_debug_mode`: Iterators that are made from then on compute each element in the thread that
      requests it, whatever threads and workers the pipeline asks for. So breakpoints stop in your
      transform, and the traceback of an error leads into its frame. The elements are the same. A
      summary of each iterator is written to standard error when it ends or is closed.

    The other options of Grain can be set and read, and have no effect.

    >>> config.py_debug_mode
    False
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_values", dict(_DEFAULTS))

    def update(self, name: str, value: Any) -> None:
        """Set an option.

        Args:
            name: The name of an option.
            value: Its new value, of the type of the default.

        Raises:
            ValueError: There is no such option.
        """
        _check(name)
        if name not in _EFFECTIVE and value != _DEFAULTS[name]:
            logger.warning("The option `%s` has no effect in gristmill.", name)
        self._values[name] = bool(value) if isinstance(_DEFAULTS[name], bool) else value

    def get_or_default(self, name: str) -> Any:
        """Return the value of an option.

        Args:
            name: The name of an option.

        Raises:
            ValueError: There is no such option.
        """
        _check(name)
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of `copy`, `pickle` and the like
            raise AttributeError(name)
        return self.get_or_default(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"Please use update(): `config.update({name!r}, {value!r})`.")

    def __repr__(self) -> str:
        changed = {name: value for name, value in self._values.items() if value != _DEFAULTS[name]}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def _check(name: str) -> None:
    if name not in _DEFAULTS:
        raise ValueError(
            f"Unrecognized config option: {name}. The options are {', '.join(sorted(_DEFAULTS))}."
        )


config: Final = Config()
