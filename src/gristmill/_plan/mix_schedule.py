"""Weights of a mixture that change with the step, as users write them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast, final

from gristmill._base.checks import as_int
from gristmill._plan.mixing import as_proportions
from gristmill._plan.nodes.base import name_of
from gristmill.errors import PlanError, PlanTypeError

StepWeights: TypeAlias = Sequence[float] | Mapping[Any, float]
"""The weights of one step: in the order of the datasets, or by the names of the datasets."""

_MAX_LABEL = 200


@final
class MixSchedule:
    """Weights of `MapDataset.mix` or `IterDataset.mix` that change with the step.

    A step is `step_size` mixed elements: pass the size of the global batch to count training steps.
    A weight may be 0, for a dataset that is not mixed in yet, or no longer. The order is a function
    of the schedule alone, and elements before a step do not depend on the weights from that step
    on. So a schedule may be changed when a checkpoint is restored: what was read stays as it was,
    if the weights up to there are the same.

    >>> from gristmill import MapDataset
    >>> easy, hard = MapDataset.range(100), MapDataset.range(1000, 1100)
    >>> schedule = MixSchedule({0: [1, 0], 2: [1, 1], 3: [0, 1]}, step_size=4)
    >>> [MapDataset.mix([easy, hard], schedule)[index] for index in range(14)]
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 1000, 9, 1001, 1002, 1003]

    Args:
        weights: A table from steps to the weights that hold from that step on, which begins with
            step 0. Or a function that returns the weights of a step; it must be pure. A table costs
            nothing. A function is called once for each step up to the one that is needed, and some
            steps ahead, in each process that reads: about ten microseconds a step, also when a
            state is restored. More than two million steps are refused.
        step_size: The number of mixed elements in a step.

    Raises:
        PlanError: The table has no step 0, or weights are negative or all 0.
        PlanTypeError: `weights` is neither a table nor a function.
    """

    def __init__(
        self,
        weights: Mapping[int, StepWeights]
        | Sequence[tuple[int, StepWeights]]
        | Callable[[int], StepWeights],
        *,
        step_size: int = 1,
    ) -> None:
        self.step_size: int = as_int("step_size", step_size, minimum=1)
        self._table: dict[int, StepWeights] = {}
        self._function: Callable[[int], StepWeights] | None = None
        if callable(weights):
            self._function = weights
        else:
            self._table = _as_table(weights)

    @property
    def steps(self) -> Sequence[int] | None:
        """The steps at which the weights of a table change. `None` for a function."""
        return None if self._function is not None else list(self._table)

    def proportions(self, step: int, names: Sequence[Any] | None, count: int) -> tuple[int, ...]:
        """Return the weights of one of the steps as integers, in the order of the datasets.

        Args:
            step: A step of the table, or any step if the schedule is a function.
            names: The names of the datasets, if they have names.
            count: The number of datasets.
        """
        if self._function is None:
            return as_step_proportions(step, self._table[step], names, count)
        try:
            weights = self._function(step)
        except Exception as error:
            error.add_note(f"In the weights of step {step}, {name_of(self._function)}.")
            raise
        return as_step_proportions(step, weights, names, count)

    def __repr__(self) -> str:
        shown = str(self._table) if self._function is None else name_of(self._function)
        size = "" if self.step_size == 1 else f", step_size={self.step_size}"
        return f"MixSchedule({shown}{size})"


MixWeights: TypeAlias = (
    StepWeights
    | Mapping[int, StepWeights]
    | Sequence[tuple[int, StepWeights]]
    | Callable[[int], StepWeights]
    | MixSchedule
)
"""Constant weights, or weights that change with the step: a table, a function or a schedule."""


def as_schedule(weights: object) -> MixSchedule | None:
    """Return the schedule that the user passes as weights, or `None` for constant weights.

    >>> as_schedule([0.5, 0.5]), as_schedule({0: [1, 2], 9: [2, 1]})
    (None, MixSchedule({0: [1, 2], 9: [2, 1]}))
    """
    if isinstance(weights, MixSchedule):
        return weights
    if callable(weights):
        return MixSchedule(cast("Callable[[int], StepWeights]", weights))
    if isinstance(weights, Mapping):
        values: list[Any] = list(cast("Mapping[Any, Any]", weights).values())
    elif isinstance(weights, Sequence):
        values = list(cast("Sequence[Any]", weights))
    else:
        return None
    is_table = bool(values) and all(isinstance(value, Sequence | Mapping) for value in values)
    return MixSchedule(cast(Any, weights)) if is_table else None


def as_step_proportions(
    step: int, weights: object, names: Sequence[Any] | None, count: int
) -> tuple[int, ...]:
    """Return the weights of one step as integers. They may be 0, but not all of them."""
    if isinstance(weights, Mapping):
        by_name = cast("Mapping[Any, float]", weights)
        if names is None or set(by_name) != set(names):
            expected = "a list of numbers" if names is None else f"the keys {list(names)}"
            raise PlanError(
                f"The weights of step {step} must have {expected}, got {dict(by_name)!r:.100}."
            )
        weights = [by_name[name] for name in names]
    try:
        numbers = [float(one) for one in cast("Sequence[float]", weights)]
    except (TypeError, ValueError):
        raise PlanTypeError(
            f"The weights of step {step} must be numbers, got {weights!r:.100}."
        ) from None
    if len(numbers) != count:
        raise PlanError(
            f"The weights of step {step} must have one number for each dataset, got "
            f"{len(numbers)} for {count} datasets."
        )
    if not all(math.isfinite(one) and one >= 0 for one in numbers) or not any(numbers):
        raise PlanError(
            f"The weights of step {step} must be at least 0, and above 0 for one dataset, got "
            f"{numbers}."
        )
    positive = iter(as_proportions([one for one in numbers if one], sum(map(bool, numbers))))
    return tuple(next(positive) if one else 0 for one in numbers)


def _as_table(weights: object) -> dict[int, StepWeights]:
    if not isinstance(weights, Mapping | Sequence) or isinstance(weights, str | bytes):
        raise PlanTypeError(
            "A schedule is a table from steps to weights, such as {0: [0.9, 0.1], 1000: [0.5, "
            f"0.5]}}, or a function of a step, got {weights!r:.100}."
        )
    try:
        given = cast("Mapping[int, StepWeights] | Sequence[tuple[int, StepWeights]]", weights)
        rows = [(as_int("step", step), row) for step, row in dict(given).items()]
    except (TypeError, ValueError) as error:
        if isinstance(error, PlanError | PlanTypeError):
            raise
        raise PlanTypeError(
            f"A schedule must have pairs of a step and its weights, got {weights!r:.100}."
        ) from None
    table = dict(sorted(rows, key=lambda pair: pair[0]))
    if 0 not in table:
        raise PlanError(f"A schedule must begin with step 0, got the steps {list(table)}.")
    return table


def label_of(schedule: MixSchedule, proportions: Mapping[int, tuple[int, ...]]) -> str:
    """Return the weights of a mix for its label. A long table is shortened to its first steps."""
    if schedule.steps is None:
        shown = repr(schedule)
    else:
        shown = str({step: _shortened(shares) for step, shares in proportions.items()})
        if schedule.step_size > 1:
            shown += f", step_size={schedule.step_size}"
    return shown if len(shown) <= _MAX_LABEL else f"{shown[:_MAX_LABEL]}..."


def _shortened(shares: tuple[int, ...]) -> list[int]:
    """Return the smallest integers of the same proportions."""
    divisor = math.gcd(*shares)
    return [share // divisor for share in shares]
