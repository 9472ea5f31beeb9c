"""Expand braces in paths, as a shell does."""

import re
from itertools import product

from gristmill.errors import PlanError

_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
_MAX_PATHS = 10**6


def expand_braces(path: str) -> list[str]:
    """Return the paths that a path with ranges or lists in braces stands for.

    >>> expand_braces("train-{08..10}.tar"), expand_braces("{train,test}.csv")
    (['train-08.tar', 'train-09.tar', 'train-10.tar'], ['train.csv', 'test.csv'])

    Args:
        path: A path or an address. Other braces are characters like any other.

    Raises:
        PlanError: If these are more than a million paths.
    """
    parts = _BRACES.split(path)  # text, then three groups and text for each pair of braces
    choices: list[list[str]] = [[parts[0]]]
    count = 1
    for first, last, listed, text in zip(*(parts[i::4] for i in (1, 2, 3, 4)), strict=True):
        if listed is not None:
            options = listed.split(",")
        else:
            low, high = int(first), int(last)
            if abs(high - low) >= _MAX_PATHS:
                raise _too_many(path)
            width = len(first) if first.startswith("0") or len(first) == len(last) else 0
            step = 1 if low <= high else -1
            options = [f"{number:0{width}}" for number in range(low, high + step, step)]
        count *= len(options)
        if count > _MAX_PATHS:
            raise _too_many(path)
        choices += [options, [text]]
    return ["".join(chosen) for chosen in product(*choices)]


def _too_many(path: str) -> PlanError:
    return PlanError(f"The braces in {path!r} stand for more than {_MAX_PATHS:,} paths.")
