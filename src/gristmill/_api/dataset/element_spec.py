"""What the elements of a dataset look like, told without reading any."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, final, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from gristmill._base.columns import Columns, SupportsColumns
from gristmill._base.tree import builder, children, map_leaves
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.batch import BatchNode
from gristmill._plan.nodes.combine import ZipNode
from gristmill._plan.nodes.combine_streams import ZipStreamNode
from gristmill._plan.nodes.dataset import CustomNode, FanOutNode, SeededMapNode
from gristmill._plan.nodes.flat_map import FlatMapNode
from gristmill._plan.nodes.map import MapNode, MapWithIndexNode
from gristmill._plan.nodes.source import SourceNode
from gristmill._plan.nodes.stream import CountedMapNode, CustomStreamNode
from gristmill._plan.nodes.stream_steps import RebatchNode
from gristmill.errors import SpecError
from gristmill.types import Tree


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything that has a shape and a dtype: an array, JAX's `ShapeDtypeStruct`, ours."""

    @property
    def shape(self) -> tuple[int | None, ...]: ...

    @property
    def dtype(self) -> DTypeLike: ...


@final
@dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """The shape and dtype of an array; a size that is not known before is `None`.

    >>> ShapeDtypeStruct((None, 3), np.dtype("float32"))
    ShapeDtypeStruct(shape=(None, 3), dtype=dtype('float32'))
    """

    shape: tuple[int | None, ...]
    dtype: DTypeLike


def get_element_spec(ds: Any) -> Any:
    """Give a tree like the elements of a dataset, with the shape and dtype of each leaf.

    Nothing is read or computed. A transformation tells what it gives by a method
    `output_spec(self, input_spec)`; where one has none, `SpecError` says which.

    >>> from gristmill import MapDataset
    >>> get_element_spec(MapDataset.range(10).batch(4, drop_remainder=True))
    ShapeDtypeStruct(shape=(4,), dtype=<class 'numpy.int64'>)
    """
    return ds._element_spec  # noqa: SLF001  (so named in Grain, for users to define)


def infer_spec(node: Node, transform: Any, parents: Sequence[Any]) -> Tree:
    """Give the spec of what a node makes of the elements of some datasets."""
    match node:
        case SourceNode():
            return _of_source(node)
        case MapNode() | MapWithIndexNode() | SeededMapNode() | CountedMapNode():
            return _of_transform(node, transform, parents)
        case FlatMapNode() | FanOutNode():
            return _of_transform(node, transform, parents)
        case BatchNode():
            return _of_batch(node, get_element_spec(parents[0]))
        case RebatchNode():
            resized = partial(_with_size, node.size)
            return map_specs(resized, get_element_spec(parents[0]))
        case ZipNode() | ZipStreamNode():
            return tuple(map(get_element_spec, parents))
        case CustomNode() | CustomStreamNode():
            raise SpecError(
                f"What {node.label} gives is not known before it is read. Define a property "
                "`_element_spec` in it."
            )
        case _:
            if not parents:
                raise SpecError(f"What {node.label} gives is not known before it is read.")
            return get_element_spec(parents[0])  # those of several are taken to be alike


def map_specs(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Give a tree of the same shape with `function` of each spec."""
    inner = None if isinstance(tree, ShapeDtypeStructProtocol) else children(tree)
    if inner is None:
        return function(tree)
    return builder(tree)([map_specs(function, child) for child in inner[1]])


def spec_text(spec: Tree) -> str:
    """Write a spec in short.

    >>> spec_text({"x": ShapeDtypeStruct((None, 3), np.float32)})
    '{"x": float32[?, 3]}'
    """
    if isinstance(spec, ShapeDtypeStructProtocol):
        sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
        return f"{np.dtype(spec.dtype).name}[{sizes}]"
    if isinstance(spec, dict):
        items = cast("dict[Any, Any]", spec).items()
        return "{" + ", ".join(f'"{key}": {spec_text(value)}' for key, value in items) + "}"
    if isinstance(spec, list | tuple):
        return f"({', '.join(map(spec_text, cast('Sequence[Any]', spec)))})"
    return repr(spec)


def _of_source(node: SourceNode) -> Tree:
    source: Any = node.source
    if isinstance(source, RangeDataSource):
        return ShapeDtypeStruct((), np.int64)
    if isinstance(source, SupportsColumns) and source.is_columnar:
        columns = source.read_columns(range(0))
        # A text has no size before it is read, and rows may have any.
        if isinstance(columns, Columns) and not columns.holds_objects:
            return map_leaves(_of_column, columns.gather())
    raise SpecError(f"What {node.label} holds is not known before it is read.")


def _of_column(array: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(array.shape[1:], array.dtype)


def _of_transform(node: Node, transform: Any, parents: Sequence[Any]) -> Tree:
    output_spec = getattr(transform, "output_spec", None)
    if output_spec is None:
        raise SpecError(
            f"{node.label} does not tell what it gives. Pass an object with a method "
            "`output_spec(self, input_spec)` that does."
        )
    return output_spec(get_element_spec(parents[0]))


def _of_batch(node: BatchNode, spec: Tree) -> Tree:
    function: Any = node.function
    while isinstance(function, partial):
        function = cast(Any, function.func)
    if function is None:
        size = node.size if node.drop_remainder else None
        return map_specs(lambda leaf: ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), spec)
    output_spec = getattr(function, "output_spec", None)
    if output_spec is None:
        raise SpecError(
            "`batch_fn` does not tell what it gives. Give it a method "
            "`output_spec(self, input_spec, batch_size, drop_remainder)` that does."
        )
    return output_spec(spec, node.size, node.drop_remainder)


def _with_size(size: int, leaf: Any) -> Any:
    return ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype)
