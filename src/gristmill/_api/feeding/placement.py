"""Placing batches on devices: one device, or a sharding over devices of one or many processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar, cast, final

import numpy as np

from gristmill._api.feeding.fast_device_put import FastDevicePut
from gristmill._api.feeding.jax_types import JaxArray, Sharding, Target
from gristmill._api.feeding.leaves import canonicalize, is_supported
from gristmill._api.feeding.mesh_shards import row_groups
from gristmill._base.extras import load_extra
from gristmill._base.trees.tree import PyTreeDef
from gristmill.errors import FeedError, PlanTypeError
from gristmill.types import AnyArray, Leaf, Tree

Unsupported: TypeAlias = Literal["raise", "pass"]
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class _FlatBatch:
    """A flattened batch: all its leaves, and those that JAX supports with their targets."""

    leaves: list[Leaf]
    structure: PyTreeDef
    indices: list[int]
    """The indices of the supported leaves in `leaves`."""
    arrays: list[Leaf]
    targets: list[Target]

    def unflatten(self, placed: Sequence[JaxArray]) -> Tree:
        """Return the batch with the placed arrays in place of the supported leaves."""
        leaves = self.leaves.copy()
        for index, array in zip(self.indices, placed, strict=True):
            leaves[index] = array
        return self.structure.unflatten(leaves)


@final
class Placement:
    """Places batches on their targets. A target is a device, a sharding, or JAX's default."""

    def __init__(self, targets: Tree, *, unsupported: Unsupported) -> None:
        """Prepare to place batches.

        Args:
            targets: A target, or a tree of targets that is a prefix of the batches.
            unsupported: What to do with leaves that JAX does not support.
        """
        self._jax = load_extra("jax", extra="jax", wanted_by="`feed`")
        self._targets = targets
        self._unsupported: Unsupported = unsupported
        self._targets_of: dict[PyTreeDef, list[Target]] = {}
        self._fast_put = FastDevicePut()
        shardings = [leaf for leaf in self._jax.tree.leaves(targets) if self._is_sharding(leaf)]
        self.processes: frozenset[int] = frozenset(
            device.process_index
            for sharding in shardings
            if not sharding.is_fully_addressable
            for device in sharding.device_set
        )
        """The processes that batches are sharded over, or none if it is only this one."""
        # Read here: they are contexts of the user's thread, and another thread calls `put`.
        self._default_device = self._jax.config.jax_default_device
        self._has_64_bits: bool = self._jax.config.jax_enable_x64

    @property
    def num_row_groups(self) -> int:
        """How many different shards of the rows the processes hold; 1 if it is not known."""
        count = 1
        for target in self._jax.tree.leaves(self._targets):
            if not isinstance(target, self._jax.sharding.NamedSharding):
                continue
            first: Any = target.spec[0] if target.spec else None
            if first is not None and not target.is_fully_addressable:
                axes = (first,) if isinstance(first, str) else tuple(first)
                count = max(count, len(row_groups(target.mesh, axes)) if axes else 1)
        return count

    def check(self, batch: Tree) -> None:
        """Raise if JAX does not support a leaf of the batch."""
        self._with_user_config(lambda: self._flatten(batch))

    def put(self, batch: Tree, mask: AnyArray | None) -> tuple[Tree, JaxArray | None]:
        """Return the batch on its targets, and the mask, if there is one, sharded like its rows."""
        return self._with_user_config(lambda: self._put_batch(batch, mask))

    def _with_user_config(self, function: Callable[[], T]) -> T:
        if self._jax.config.jax_enable_x64 == self._has_64_bits:
            return function()
        with self._jax.enable_x64(self._has_64_bits):
            return function()

    def _flatten(self, batch: Tree) -> _FlatBatch:
        leaves, structure = self._jax.tree.flatten(batch)
        targets = self._targets_of.get(structure)
        if targets is None:
            targets = self._targets_of[structure] = self._broadcast_targets(batch, structure)
        flat = _FlatBatch(leaves, structure, indices=[], arrays=[], targets=[])
        for index, leaf in enumerate(leaves):
            if is_supported(leaf):
                flat.indices.append(index)
                flat.arrays.append(canonicalize(leaf, _LeafName(batch, index)))
                flat.targets.append(targets[index])
            elif self._unsupported == "raise":
                raise FeedError(
                    f"{_LeafName(batch, index)} is {_describe(leaf)}, which JAX does not support. "
                    'Remove it with a `map` before feeding, or pass `unsupported="pass"` to get it '
                    "unchanged."
                )
        return flat

    def _put_batch(self, batch: Tree, mask: AnyArray | None) -> tuple[Tree, JaxArray | None]:
        flat = self._flatten(batch)
        masks, mask_targets = ([], []) if mask is None else ([mask], [self._mask_target(flat)])
        try:
            placed = self._put_arrays(flat.arrays + masks, flat.targets + mask_targets)
        except (ValueError, TypeError) as error:
            error.add_note(_shape_note(batch, flat.leaves))
            raise
        count = len(flat.arrays)
        return flat.unflatten(placed[:count]), placed[count] if masks else None

    def _mask_target(self, flat: _FlatBatch) -> Target:
        """Return the target of the mask: that of the rows of the first array with rows."""
        pairs = zip(flat.arrays, flat.targets, strict=True)
        first: Any = next((target for array, target in pairs if np.ndim(array)), None)
        if not isinstance(first, self._jax.sharding.NamedSharding):
            return first
        spec = self._jax.sharding.PartitionSpec(*first.spec[:1])
        return self._jax.sharding.NamedSharding(first.mesh, spec, memory_kind=first.memory_kind)

    def _put_arrays(self, arrays: list[Leaf], targets: list[Target]) -> Sequence[JaxArray]:
        if not self.processes:
            known = [self._fast_put.put(*pair) for pair in zip(arrays, targets, strict=True)]
            if not any(array is None for array in known):  # `in` would compare arrays
                return cast("list[JaxArray]", known)
            with self._jax.default_device(self._default_device):
                placed = self._jax.device_put(arrays, targets)
            for triple in zip(arrays, targets, placed, strict=True):
                self._fast_put.record(*triple)
            return placed
        make = self._jax.make_array_from_process_local_data
        return [
            self._jax.device_put(array, target)
            if target is None or not self._is_sharding(target) or target.is_fully_addressable
            else make(target, np.asarray(array))
            for array, target in zip(arrays, targets, strict=True)
        ]

    def _broadcast_targets(self, batch: Tree, structure: PyTreeDef) -> list[Target]:
        """Return the target of each leaf of a batch."""
        is_target = self._is_target
        if is_target(self._targets):
            return [self._targets] * structure.num_leaves
        try:
            return self._jax.tree.leaves(
                self._jax.tree.broadcast(self._targets, batch, is_leaf=is_target),
                is_leaf=is_target,
            )
        except ValueError as error:
            raise FeedError(
                "The tree of devices or shardings must be a prefix of the batch, and is not: "
                f"{error}"
            ) from None

    def _is_sharding(self, value: object) -> TypeGuard[Sharding]:
        return isinstance(value, self._jax.sharding.Sharding)

    def _is_target(self, value: object) -> bool:
        return value is None or self._is_sharding(value) or isinstance(value, self._jax.Device)


def _shape_note(batch: Tree, leaves: Sequence[Leaf]) -> str:
    shapes = [f"{_LeafName(batch, index)} {np.shape(leaf)}" for index, leaf in enumerate(leaves)]
    return (
        f"The batch to feed was {', '.join(shapes)}. If its rows cannot be divided evenly among "
        'the devices, pass `remainder="pad"` or `remainder="drop"`, or change the batch size. If '
        "some leaves are to be placed differently, pass a tree of devices or shardings."
    )


def as_placement(device: Tree, spec: Tree, *, unsupported: Unsupported) -> Placement:
    """Return the `Placement` of the arguments of `feed`, after checking them."""
    jax = load_extra("jax", extra="jax", wanted_by="`feed`")
    mesh_class, spec_class = jax.sharding.Mesh, jax.sharding.PartitionSpec
    if isinstance(device, mesh_class):
        # By default the rows are sharded over all devices of the mesh.
        specs = spec_class(device.axis_names) if spec is None else spec
        for leaf in jax.tree.leaves(specs):
            if not isinstance(leaf, spec_class):
                raise PlanTypeError(
                    f"`spec` must be a `jax.sharding.PartitionSpec` or a tree of them, got "
                    f"{leaf!r:.100}."
                )
        targets = jax.tree.map(partial(jax.sharding.NamedSharding, device), specs)
        return Placement(targets, unsupported=unsupported)
    if spec is not None:
        raise PlanTypeError(
            f"`spec` needs a mesh, but `device` is {device!r:.100}. Pass a `jax.sharding.Mesh`, or "
            "a `NamedSharding` without a spec."
        )
    for leaf in jax.tree.leaves(device):
        if not isinstance(leaf, (jax.Device, jax.sharding.Sharding)):
            raise PlanTypeError(
                f"`device` must be a device, a sharding, a mesh or a tree of the first two, got "
                f"{leaf!r:.100}."
            )
    return Placement(device, unsupported=unsupported)


class _LeafName:
    """The name of a leaf, computed only when an error message contains it."""

    def __init__(self, batch: Tree, index: int) -> None:
        self._batch = batch
        self._index = index

    def __str__(self) -> str:
        jax = load_extra("jax", extra="jax", wanted_by="`feed`")
        path, _ = jax.tree_util.tree_flatten_with_path(self._batch)[0][self._index]
        return f"batch{jax.tree_util.keystr(path)}"


def _describe(leaf: object) -> str:
    dtype = getattr(leaf, "dtype", None)
    return f"of type {type(leaf).__name__}" if dtype is None else f"an array of {dtype}"
