"""Options for a whole pipeline, and the dataset that sets them."""

import enum
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from gristmill._check import as_kind
from gristmill._site import call_site
from gristmill.dataset._iter import IterDataset, PlannedIterDataset
from gristmill.errors import PlanError, PlanTypeError
from gristmill.plan import OptionsNode

T = TypeVar("T")


@enum.unique
class ExecutionTrackingMode(enum.Enum):
    """Whether to time each step. gristmill always does: see `iterator.stats()`."""

    DISABLED = enum.auto()
    STAGE_TIMING = enum.auto()


@dataclass(frozen=True, slots=True)
class _Default(Generic[T]):
    """A value that nobody set."""

    value: T


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """What holds for all of a pipeline, wherever in it `WithOptionsIterDataset` stands.

    A filter that leaves out at least a share `filter_warn_threshold_ratio` of some thousand
    elements in a row logs a warning; from `filter_raise_threshold_ratio` on it raises. `None`
    turns either off. `execution_tracking_mode` and `min_shm_size` are taken for Grain's sake:
    steps are always timed, and small arrays are never sent through shared memory.

    >>> DatasetOptions(min_shm_size=1024).filter_warn_threshold_ratio
    0.9
    """

    filter_warn_threshold_ratio: float | _Default[float] | None = _Default(0.9)
    filter_raise_threshold_ratio: float | _Default[None] | None = _Default(None)
    execution_tracking_mode: ExecutionTrackingMode | _Default[ExecutionTrackingMode] = _Default(
        ExecutionTrackingMode.DISABLED
    )
    min_shm_size: int | _Default[int] = _Default(0)
    _names_given: frozenset[str] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            one.name: getattr(self, one.name) for one in fields(self) if one.init
        }
        given = frozenset(n for n, value in values.items() if not isinstance(value, _Default))
        for name in given & {"filter_warn_threshold_ratio", "filter_raise_threshold_ratio"}:
            _check_ratio(name, values[name])
        plain: dict[str, Any] = {n: values[n].value for n in values.keys() - given}
        for name, value in {**plain, "_names_given": given}.items():
            object.__setattr__(self, name, value)

    def given(self) -> dict[str, Any]:
        """Give the options that were set, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if self._has(one.name)}

    def merge(self, other: "DatasetOptions | None") -> "DatasetOptions":
        """Give these options, and where one is not set, that of `other`.

        >>> DatasetOptions(min_shm_size=1).merge(DatasetOptions(min_shm_size=2)).min_shm_size
        1
        """
        return self if other is None else DatasetOptions(**{**other.given(), **self.given()})

    def _has(self, name: str) -> bool:
        return name in self._names_given


def _check_ratio(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise PlanTypeError(f"`{name}` must be a number or None, got {value!r}.")
    if value is not None and not 0 <= value <= 1:
        raise PlanError(f"`{name}` must be between 0 and 1, got {value!r}.")


class WithOptionsIterDataset(PlannedIterDataset[T]):
    """The parent as it is, with options for all steps before and after it.

    Where options are set several times, those set later come first.

    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.range(5000).filter(lambda x: x == 0).to_iter_dataset()
    >>> ds = WithOptionsIterDataset(ds, DatasetOptions(filter_raise_threshold_ratio=0.99))
    >>> list(ds)
    Traceback (most recent call last):
    ...
    gristmill.errors.FilterError: Filter <lambda> left out ...
    """

    def __init__(self, parent: IterDataset[T], options: DatasetOptions) -> None:
        self.options = as_kind(
            "options", options, DatasetOptions, remedy="Pass `DatasetOptions(...)`."
        )
        node = OptionsNode(site=call_site(), parent=parent.node, given=self.options.given())
        super().__init__(node, (parent,))
