"""Sample records of many types."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Label:
    name: str
    weights: Any


class Plain:
    """A class without `__eq__`."""

    def __init__(self, value: int) -> None:
        self.value = value


RECORDS: list[Any] = [
    "text",
    3,
    None,
    {"x": np.arange(3, dtype=np.int16), "y": [np.float32("nan"), float("nan")]},
    Point(np.array("2020", "datetime64[Y]"), np.array(["a", "bc"])),
    Label("cat", np.array([True, False])),
    np.array([(1, 2.5)], dtype=[("a", "i1"), ("b", "f8")]),
    np.array([{1}, None], dtype=object),
    b"bytes",
    Plain(7),
]
