"""Element specs: the structure, shapes and dtypes of elements, known without reading any."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from gristmill._base.trees.tree import builder, children, with_sorted_keys
from gristmill._data.batching.pad import PadBatch
from gristmill._data.batching.pad_options import Keys, child_keys, option_at
from gristmill.errors import SpecError
from gristmill.types import Tree

ParentSpecs: TypeAlias = Sequence[Callable[[], Tree]]
"""Functions that return the specs of the parents. A spec that is not needed is not computed, so
that it cannot fail."""


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """An object with a shape and a dtype: an array, JAX's `ShapeDtypeStruct`, or this module's.

    >>> import numpy as np
    >>> isinstance(np.zeros(3), ShapeDtypeStructProtocol), isinstance(3, ShapeDtypeStructProtocol)
    (True, False)
    """

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
    size = batch_size if drop_remainder else None
    if isinstance(function, PadBatch):
        return padded_spec(function, spec, num_rows=size)
    if function is None:
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


def padded_spec(options: PadBatch, spec: Tree, *, num_rows: int | None, keys: Keys = ()) -> Tree:
    """Return the spec of batches that `PadBatch` makes of elements with a spec."""
    inner = None if isinstance(spec, ShapeDtypeStructProtocol) else children(spec)
    if inner is not None:
        names = child_keys(spec)
        made: list[Tree] = [
            padded_spec(options, child, num_rows=num_rows, keys=(*keys, name))
            for name, child in zip(names, inner[1], strict=True)
        ]
        if not isinstance(spec, Mapping):
            return builder(spec)([_as_pair(one) for one in made])
        plain = [one[0] if isinstance(one, _PaddedSpec) else one for one in made]
        added = {
            f"{name}_{kind}": leaf
            for name, one in zip(names, made, strict=True)
            for kind, leaf in (one.added.items() if isinstance(one, _PaddedSpec) else ())
        }
        return (
            with_sorted_keys({**builder(spec)(plain), **added}) if added else builder(spec)(plain)
        )
    if not spec.shape or not options.is_padded(keys):
        return ShapeDtypeStruct((num_rows, *spec.shape), spec.dtype)
    length = option_at(options.length, keys)
    values = ShapeDtypeStruct((num_rows, length, *spec.shape[1:]), spec.dtype)
    added = {}
    if option_at(options.add_lengths, keys):
        added["length"] = ShapeDtypeStruct((num_rows,), np.dtype(np.int32))
    if option_at(options.add_mask, keys):
        added["mask"] = ShapeDtypeStruct((num_rows, length), np.dtype(np.bool_))
    if not added:
        return values
    padded = _PaddedSpec(values, added)
    return padded if keys else _as_pair(padded)


class _PaddedSpec(NamedTuple):
    """The spec of a padded array, and of what is added beside it."""

    values: ShapeDtypeStruct
    added: dict[str, ShapeDtypeStruct]


def _as_pair(spec: Tree) -> Tree:
    return (spec.values, *spec.added.values()) if isinstance(spec, _PaddedSpec) else spec


def resized_spec(parents: ParentSpecs, *, batch_size: int) -> Tree:
    """Return the spec of the parent's batches with another number of rows."""
    return map_specs(
        lambda leaf: ShapeDtypeStruct((batch_size, *leaf.shape[1:]), leaf.dtype), parents[0]()
    )
