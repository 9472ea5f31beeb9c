"""Options of a whole pipeline."""

import enum
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from gristmill._api.step_bookmarks import NUM_BOOKMARKS
from gristmill._base.checks import as_int
from gristmill.errors import PlanError, PlanTypeError

T = TypeVar("T")


@enum.unique
class ExecutionTrackingMode(enum.Enum):
    """Whether Grain times each step. gristmill always does: see `iterator.stats()`.

    >>> ExecutionTrackingMode.STAGE_TIMING.name
    'STAGE_TIMING'
    """

    DISABLED = enum.auto()
    STAGE_TIMING = enum.auto()


@dataclass(frozen=True, slots=True)
class _Default(Generic[T]):
    """A default value, which `merge` distinguishes from a value that the user set."""

    value: T


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """Options of a whole pipeline. `WithOptionsIterDataset` sets them.

    A filter that removes almost all elements is often a mistake. So each filter computes the ratio
    of removed elements over about a thousand consecutive ones, and warns or raises if it is high.

    >>> DatasetOptions(min_shm_size=1024).filter_warn_threshold_ratio
    0.9

    Args:
        filter_warn_threshold_ratio: The ratio from which a filter logs a warning, between 0 and 1.
            `None` turns the warning off.
        filter_raise_threshold_ratio: The ratio from which a filter raises `FilterError`. `None`
            turns the error off.
        execution_tracking_mode: Ignored; it exists for compatibility. All steps are timed.
        min_shm_size: Ignored; it exists for compatibility. Small arrays are never sent through
            shared memory.
        num_bookmarks: How many positions `at` and `from_step` of the dataset may start from where
            steps must be counted, as after packing. Iterators add one from time to time.

    Raises:
        PlanError: If a ratio is not between 0 and 1, or a value is out of bounds.
    """

    filter_warn_threshold_ratio: float | _Default[float] | None = _Default(0.9)
    filter_raise_threshold_ratio: float | _Default[None] | None = _Default(None)
    execution_tracking_mode: ExecutionTrackingMode | _Default[ExecutionTrackingMode] = _Default(
        ExecutionTrackingMode.DISABLED
    )
    min_shm_size: int | _Default[int] = _Default(0)
    num_bookmarks: int | _Default[int] = _Default(NUM_BOOKMARKS)
    _names_set: frozenset[str] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            option.name: getattr(self, option.name) for option in fields(self) if option.init
        }
        names_set = frozenset(n for n, value in values.items() if not isinstance(value, _Default))
        for name in names_set & {"filter_warn_threshold_ratio", "filter_raise_threshold_ratio"}:
            _check_ratio(name, values[name])
        if "num_bookmarks" in names_set:
            as_int("num_bookmarks", values["num_bookmarks"])
        defaults: dict[str, Any] = {n: values[n].value for n in values.keys() - names_set}
        for name, value in {**defaults, "_names_set": names_set}.items():
            object.__setattr__(self, name, value)

    def merge(self, other: "DatasetOptions | None") -> "DatasetOptions":
        """Return these options, with those of `other` where an option is not set.

        >>> DatasetOptions(min_shm_size=1).merge(DatasetOptions(min_shm_size=2)).min_shm_size
        1

        Args:
            other: Options of lower priority.
        """
        return (
            self if other is None else DatasetOptions(**{**options_set(other), **options_set(self)})
        )


def options_set(options: DatasetOptions) -> dict[str, Any]:
    """Return the options that the user set, by name.

    >>> options_set(DatasetOptions(min_shm_size=1))
    {'min_shm_size': 1}
    """
    private: Any = options
    names: frozenset[str] = private._names_set  # noqa: SLF001 - of the class above
    return {
        option.name: getattr(options, option.name)
        for option in fields(options)
        if option.name in names
    }


def _check_ratio(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanTypeError(f"`{name}` must be a number or None, got {value!r}.")
    if not 0 <= value <= 1:
        raise PlanError(f"`{name}` must be between 0 and 1, got {value!r}.")
