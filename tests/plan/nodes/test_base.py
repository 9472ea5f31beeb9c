import functools
from typing import Any

import pytest

from gristmill._plan.nodes.base import name_of, stable_repr


class Plain:
    def method(self) -> None: ...


class Shown:
    def __repr__(self) -> str:
        return "Shown(3)"


def local_function() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (len, "len"),
        (lambda x: x, "<lambda>"),
        (functools.partial(functools.partial(len)), "len"),
        (Plain(), "Plain"),
        (Shown(), "Shown(3)"),
        (Plain().method, "Plain.method"),
        (local_function(), "inner"),
    ],
)
def test_functions_and_transforms_are_named_as_in_the_users_code(value: Any, name: str):
    assert name_of(value) == name


@pytest.mark.parametrize(
    ("value", "shown"),
    [(Shown(), "Shown(3)"), (object(), "object"), ("a" * 300, "str"), (3, "3")],
    ids=["repr", "address", "long", "short"],
)
def test_a_repr_that_has_an_address_or_is_too_long_is_replaced_by_the_type(value: Any, shown: str):
    assert stable_repr(value) == shown
