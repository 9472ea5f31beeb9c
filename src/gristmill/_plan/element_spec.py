"""Element specs: the structure, shapes and dtypes of elements, known without reading any."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from gristmill._base.tree import builder, children
from gristmill.errors import SpecError
from gristmill.types import Tree

ParentSpecs: TypeAlias = Sequence[Callable[[], Tree]]
"""Functions that return the specs of the parents. A spec that is not needed is not computed, so
that it cannot fail."""


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """An object with a shape and a dtype: an array, JAX's `ShapeDtypeStruct`, or this module's."""

    @property
    def shape(self) -> tuple[int | None, ...]: ...

    @property
    def dtype(self) -> DTypeLike: ...


@final
@dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and dtype of an array. A size that is not known in advance is `None`.

    >>> ShapeDtypeStruct((None, 3), np.dtype("float32"))
    ShapeDtypeStruct(shape=(None, 3), dtype=dtype('float32'))
    """

    shape: tuple[int | None, ...]
    dtype: DTypeLike


def map_specs(function: Callable[[ShapeDtypeStructProtocol], ShapeDtypeStruct], tree: Tree) -> Tree:
    """Return a tree of the same structure, with `function` applied to each leaf."""
    inner = None if isinstance(tree, ShapeDtypeStructProtocol) else children(tree)
    if inner is None:
        return function(tree)
    return builder(tree)([map_specs(function, child) for child in inner[1]])


def format_spec(spec: Tree) -> str:
    """Return a spec as a short string.

    >>> format_spec({"x": ShapeDtypeStruct((None, 3), np.float32)})
    '{"x": float32[?, 3]}'
    """
    if isinstance(spec, ShapeDtypeStructProtocol):
        sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
        return f"{np.dtype(spec.dtype).name}[{sizes}]"
    if isinstance(spec, dict):
        items = cast("dict[object, Tree]", spec).items()
        return "{" + ", ".join(f'"{key}": {format_spec(value)}' for key, value in items) + "}"
    if isinstance(spec, list | tuple):
        return f"({', '.join(map(format_spec, cast('Sequence[Tree]', spec)))})"
    return repr(spec)


def first_spec(label: str, parents: ParentSpecs) -> Tree:
    """Return the spec of elements that are those of the parents, which are assumed to be alike."""
    if not parents:
        raise SpecError(f"The elements of {label} are not known before they are read.")
    return parents[0]()


def output_spec(label: str, transform: Any, parents: ParentSpecs) -> Tree:
    """Return the spec of the outputs of a transformation, which describes them itself."""
    describe = getattr(transform, "output_spec", None)
    if describe is None:
        raise SpecError(
            f"{label} does not implement `output_spec`, so its outputs are not known before they "
            "are computed. Pass an object with a method `output_spec(self, input_spec)` that "
            "returns their spec."
        )
    return describe(parents[0]())


def batch_spec(
    function: Any, parents: ParentSpecs, *, batch_size: int, drop_remainder: bool
) -> Tree:
    """Return the spec of batches: of stacked elements, or as `function` describes its results."""
    spec = parents[0]()
    if function is None:
        size = batch_size if drop_remainder else None
        return map_specs(lambda leaf: ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), spec)
    while isinstance(function, partial):
        function = cast("Any", function.func)
    describe = getattr(function, "output_spec", None)
    if describe is None:
        raise SpecError(
            "`batch_fn` does not describe its results. Pass an object with a method "
            "`output_spec(self, input_spec, batch_size, drop_remainder)` that returns their spec."
        )
    return describe(spec, batch_size, drop_remainder)


def resized_spec(parents: ParentSpecs, *, batch_size: int) -> Tree:
    """Return the spec of the parent's batches with another number of rows."""
    return map_specs(
        lambda leaf: ShapeDtypeStruct((batch_size, *leaf.shape[1:]), leaf.dtype), parents[0]()
    )
