"""What the tuner has learned in the iterators of a loader, for the next one.

It is a hint: the next iterator begins on the strategy that was best, and measures it again. The
stream never depends on it.
"""

from typing import final

from gristmill._engine.tuning.executor_choice import resumed_choice
from gristmill._engine.tuning.strategy import ExecutorChoice, Strategy


@final
class LearnedChoices:
    """The last choice of each part of a plan that is tuned by itself.

    Iterators of several threads may share it: each change is one atomic operation, and the last one
    counts.
    """

    def __init__(self) -> None:
        self._choices: dict[int, ExecutorChoice] = {}

    def __reduce__(self) -> "tuple[type[LearnedChoices], tuple[()]]":
        return LearnedChoices, ()  # another process may have other cores

    def remember(self, number: int, choice: ExecutorChoice) -> None:
        """Keep the choice of an iterator that ends, if it has measured anything.

        Args:
            number: The number of the lowest step of the part.
            choice: What was learned.
        """
        if choice.best_rate > 0:
            self._choices[number] = choice

    def recall(self, number: int, strategies: tuple[Strategy, ...]) -> ExecutorChoice | None:
        """Return what to begin with, if the strategies are the same as before."""
        choice = self._choices.get(number)
        if choice is None or choice.strategies != strategies:
            return None
        return resumed_choice(choice)
