"""The step that gives several elements for each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from gristmill._plan.nodes.base import Step
from gristmill.types import Element


@final
@dataclass(frozen=True, kw_only=True)
class FlatMapNode(Step):
    """The elements of `function` of each element, at most `max_fan_out` of them."""

    function: Callable[[Element], Iterable[Element]]
    max_fan_out: int
    given: tuple[tuple[int, ...], ...] = ()
    """Cursors within records of which others gave the pieces before."""

    @property
    def label(self) -> str:
        return f"FlatMap {self.name}"

    @property
    def is_dense(self) -> bool:
        return False
