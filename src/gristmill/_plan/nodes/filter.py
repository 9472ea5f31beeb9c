"""The step that leaves elements out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from gristmill._plan.nodes.base import Step
from gristmill._plan.nodes.options import FilterLimits
from gristmill.types import Element


@final
@dataclass(frozen=True, kw_only=True)
class FilterNode(Step):
    """The elements for which `function` says yes."""

    function: Callable[[Element], bool]
    limits: FilterLimits | None = None
    """How many it may leave out."""

    @property
    def label(self) -> str:
        return f"Filter {self.name}"

    @property
    def is_dense(self) -> bool:
        return False
