"""Pytrees: dicts, sequences, named tuples, dataclasses and classes registered with JAX."""

import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.trees.tree import (
    builder,
    children,
    flatten,
    is_jax_pytree,
    leaves_with_paths,
    map_leaves,
)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Frozen:
    image: Any
    pixels: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", 784)


class Defaults(dict[str, Any]):
    """A dict whose constructor takes no items."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@jax.tree_util.register_pytree_with_keys_class
class Registered:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def tree_flatten_with_keys(self) -> Any:
        keys = map(jax.tree_util.GetAttrKey, ("first", "second"))
        return tuple(zip(keys, (self.first, self.second), strict=True)), None

    @classmethod
    def tree_unflatten(cls, aux: None, leaves: Any) -> "Registered":
        return cls(*leaves)


TREES = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda trees: (
        st.lists(trees, max_size=3)
        | st.lists(trees, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), trees, max_size=3)
        | st.builds(Point, trees, trees)
    ),
    max_leaves=12,
)


@given(tree=TREES)
def test_unflattening_the_leaves_restores_the_tree(tree: Any):
    leaves, unflatten = flatten(tree)

    assert unflatten(leaves) == tree
    assert leaves == [leaf for _, leaf in leaves_with_paths(tree)]


@given(tree=TREES)
def test_mapping_the_identity_copies_every_node_and_keeps_its_type(tree: Any):
    mapped = map_leaves(lambda leaf: leaf, tree)

    assert mapped == tree
    assert repr(mapped) == repr(tree)  # types and the order of keys


@given(tree=TREES)
def test_leaves_without_dicts_are_those_of_jax(tree: Any):
    # JAX sorts the keys of dicts; gristmill keeps their order.
    theirs = jax.tree_util.tree_leaves(map_keys_sorted(tree))
    assert flatten(map_keys_sorted(tree))[0] == theirs


def map_keys_sorted(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: map_keys_sorted(tree[key]) for key in sorted(tree)}
    if isinstance(tree, Point):
        return Point(*map(map_keys_sorted, tree))
    return type(tree)(map(map_keys_sorted, tree)) if isinstance(tree, list | tuple) else tree


def test_paths_are_written_as_in_python():
    tree = {"a": [1, Point(2, 3)], 7: Frozen(4)}

    assert dict(leaves_with_paths(tree, "tree")) == {
        'tree["a"][0]': 1,
        'tree["a"][1].x': 2,
        'tree["a"][1].y': 3,
        "tree[7].image": 4,
        "tree[7].pixels": 784,
    }


def test_none_has_no_leaves():
    assert flatten(None)[0] == []
    assert children(None) == ([], [])


@pytest.mark.parametrize("leaf", [1, "text", b"bytes", np.zeros(2), {1, 2}, Frozen], ids=repr)
def test_other_objects_are_leaves(leaf: Any):
    assert children(leaf) is None


def test_a_leaf_cannot_be_rebuilt():
    with pytest.raises(TypeError, match="a leaf of type int has no children"):
        builder(3)


def test_a_frozen_dataclass_is_rebuilt_with_all_its_fields():
    rebuilt = builder(Frozen("a"))(["b", 9])

    assert (rebuilt.image, rebuilt.pixels) == ("b", 9)  # the constructor would set 784


def test_a_dict_subclass_is_copied_with_its_attributes():
    node = Defaults("train")
    node["x"] = 1

    rebuilt = builder(node)([2])

    assert (type(rebuilt), rebuilt.name, dict(rebuilt)) == (Defaults, "train", {"x": 2})
    assert node == {"x": 1}


@pytest.mark.parametrize(
    "node",
    [OrderedDict(a=1), defaultdict(list, a=1), MappingProxyType({"a": 1})],
    ids=lambda node: type(node).__name__,
)
def test_mappings_keep_their_type(node: Mapping[str, Any]):
    rebuilt = builder(node)([5])

    assert type(rebuilt) is type(node)
    assert rebuilt["a"] == 5
    assert getattr(rebuilt, "default_factory", None) is getattr(node, "default_factory", None)


def test_a_class_registered_with_jax_is_a_node():
    node = Registered(1, {"a": 2})

    assert dict(leaves_with_paths(node)) == {".first": 1, '.second["a"]': 2}
    doubled = map_leaves(lambda leaf: 2 * leaf, node)
    assert (doubled.first, doubled.second) == (2, {"a": 4})


@pytest.mark.parametrize(
    ("cls", "is_registered"), [(Registered, True), (Frozen, False), (dict, False), (int, False)]
)
def test_only_registered_classes_are_jax_pytrees(cls: type[Any], is_registered: bool):
    assert is_jax_pytree(cls) is is_registered


REFUSE = """
import sys
from gristmill._base.trees.tree import children, refuse_pytrees
from gristmill.errors import BatchError
class Example: pass
assert children(Example()) is None
refuse_pytrees([Example])
try:
    children(Example())
except BatchError as error:
    print(error)
assert "jax" not in sys.modules
"""


def test_refused_classes_are_an_error_and_jax_is_not_imported():
    done = subprocess.run(
        [sys.executable, "-c", REFUSE], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("Example is a pytree that your script registers with JAX")
