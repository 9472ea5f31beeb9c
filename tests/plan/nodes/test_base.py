import functools
from typing import Any

import pytest

from gristmill._plan.nodes.base import name_of, stable_repr


class Plain:
    def method(self) -> None: ...


class Told:
    def __repr__(self) -> str:
        return "Told(3)"


def local_function() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (len, "len"),
        (lambda x: x, "<lambda>"),
        (functools.partial(functools.partial(len)), "len"),
        (Plain(), "Plain"),
        (Told(), "Told(3)"),
        (Plain().method, "Plain.method"),
        (local_function(), "inner"),
    ],
)
def test_things_are_named_as_the_user_wrote_them(thing: Any, name: str):
    assert name_of(thing) == name


@pytest.mark.parametrize(
    ("thing", "told"),
    [(Told(), "Told(3)"), (object(), "object"), ("a" * 300, "str"), (3, "3")],
    ids=["repr", "address", "long", "short"],
)
def test_a_repr_with_an_address_or_too_long_gives_way_to_the_type(thing: Any, told: str):
    assert stable_repr(thing) == told
