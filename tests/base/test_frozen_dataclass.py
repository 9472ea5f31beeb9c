import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import ClassVar

import pytest

from gristmill._base.frozen_dataclass import frozen_dataclass


@frozen_dataclass
class Parent:
    limit: ClassVar[int] = 3

    site: str
    names: list[str] = field(default_factory=list[str])


@frozen_dataclass
class Child(Parent):
    size: int = 1
    note: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("`size` must be at least 1.")


@frozen_dataclass
class OwnRepr(Parent):
    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    site: str
    names: list[str] = field(default_factory=list[str])
    size: int = 1
    note: str = field(default="", compare=False, repr=False)


def test_it_prints_compares_and_hashes_as_a_compiled_dataclass_does():
    one, other = Child(site="a", note="x"), Child(site="a", note="y")
    assert repr(one).replace("Child", "Compiled") == repr(Compiled(site="a", note="x"))
    assert one == other
    assert one != Child(site="a", size=2)
    assert one != Parent(site="a")
    point, same = replace(one, names=()), replace(other, names=())  # pyright: ignore[reportArgumentType]
    assert hash(point) == hash(same)
    assert [one.name for one in fields(Child)] == [one.name for one in fields(Compiled)]


def test_each_object_has_a_default_of_its_own():
    one, other = Child(site="a"), Child(site="a")
    one.names.append("x")
    assert other.names == []


def test_fields_cannot_be_assigned_or_deleted():
    one = Child(site="a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'size'"):
        one.size = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'size'"):
        del one.size  # pyright: ignore[reportAttributeAccessIssue]


def test_arguments_are_checked():
    with pytest.raises(TypeError, match=r"Child\(\) misses the argument 'site'"):
        Child()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"Child\(\) has no argument 'sise'"):
        Child(site="a", sise=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Child("a")  # pyright: ignore[reportCallIssue]


def test_values_are_checked_when_it_is_created_and_replaced():
    with pytest.raises(ValueError, match="at least 1"):
        Child(site="a", size=0)
    with pytest.raises(ValueError, match="at least 1"):
        replace(Child(site="a"), size=0)


def test_it_can_be_pickled():
    one = Child(site="a", names=["b"], size=2, note="c")
    copy = pickle.loads(pickle.dumps(one))
    assert copy == one
    assert copy.note == "c"


def test_a_class_may_define_its_own_methods():
    assert repr(OwnRepr(site="a")) == "own"
