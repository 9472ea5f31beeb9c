"""Which shard of the data a process loads, for arrays that are sharded over a mesh."""

from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np

from gristmill._base.extras import load_extra
from gristmill._data.sampling.shard_options import EMPTY_SHARD_COUNT
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import ShardOptions


class ShardByMesh(ShardOptions):
    """The shard of this process, if the rows of a batch are sharded over axes of a mesh.

    Processes whose devices hold the same rows get the same shard: with model parallelism over
    hosts, all hosts of one model replica read the same records. There are as many shards as groups
    of such processes. Feed the batches with the same mesh and axis, as in
    `feed(loader, mesh, PartitionSpec(axis))`.

    A process that loads nothing gets an empty shard: one without devices in the mesh, or one that
    is not in `processes`. It still takes part in every step of `feed(..., remainder="pad")`, with
    rows whose mask is false.

    >>> import jax
    >>> mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    >>> ShardByMesh(mesh, "data")
    ShardByMesh(shard_index=0, shard_count=1, drop_remainder=False)

    Args:
        mesh: A `jax.sharding.Mesh`.
        axis: The name of the axis that the rows are sharded over, or a tuple of several names.
        processes: The processes that load real data, by `jax.process_index()`. By default all.
        drop_remainder: Whether to drop the last records if the data does not divide evenly.

    Raises:
        PlanError: The mesh has no such axis, or processes hold only a part of their rows in
            common, so that no shard has the rows of one of them.
        PlanTypeError: `mesh` is not a mesh.
    """

    def __init__(
        self,
        mesh: Any,
        axis: str | Sequence[str],
        *,
        processes: Collection[int] | None = None,
        drop_remainder: bool = False,
    ) -> None:
        jax = load_extra("jax", extra="jax", wanted_by="`ShardByMesh`")
        if not isinstance(mesh, jax.sharding.Mesh):
            raise PlanTypeError(f"`mesh` must be a `jax.sharding.Mesh`, got {mesh!r:.100}.")
        axes = (axis,) if isinstance(axis, str) else tuple(axis)
        groups = row_groups(mesh, axes)
        if processes is not None:
            wanted = set(processes)
            groups = [group for group in groups if group & wanted]
            if not groups:
                raise PlanError(
                    f"None of the processes {sorted(wanted)} has a device in the mesh. Pass some "
                    "that have."
                )
        me = cast("int", jax.process_index())
        own = [number for number, group in enumerate(groups) if me in group]
        super().__init__(
            shard_index=own[0] if own else EMPTY_SHARD_COUNT - 1,
            shard_count=len(groups) if own else EMPTY_SHARD_COUNT,
            drop_remainder=drop_remainder,
        )


def row_groups(mesh: Any, axes: Sequence[str]) -> list[set[int]]:
    """Return the groups of processes whose devices hold the same rows, in the order of the rows.

    Args:
        mesh: A mesh.
        axes: The axes that the rows are sharded over.
    """
    names: tuple[str, ...] = mesh.axis_names
    unknown = [axis for axis in axes if axis not in names]
    if unknown or not axes:
        raise PlanError(f"`axis` must be one of the axes of the mesh, {names}, got {axes!r}.")
    devices = np.moveaxis(
        np.asarray(mesh.devices, dtype=object),
        [names.index(axis) for axis in axes],
        range(len(axes)),
    )
    rows_of: dict[int, set[int]] = {}
    count = int(np.prod(devices.shape[: len(axes)]))
    for row, replicas in enumerate(devices.reshape(count, -1)):
        for device in replicas:
            rows_of.setdefault(device.process_index, set()).add(row)
    groups: dict[frozenset[int], set[int]] = {}
    for process, rows in sorted(rows_of.items()):
        groups.setdefault(frozenset(rows), set()).add(process)
    covered = [row for rows in groups for row in rows]
    if len(set(covered)) < len(covered) or len({len(rows) for rows in groups}) > 1:
        listed = "; ".join(
            f"processes {sorted(group)}: {sorted(rows)}" for rows, group in groups.items()
        )
        raise PlanError(
            f"The processes hold different parts of the rows along {tuple(axes)}, some of which "
            f"overlap or differ in size ({listed}), so that there is no shard for each. Order the "
            "devices of the mesh by process, as `jax.make_mesh` does."
        )
    return [group for _, group in sorted(groups.items(), key=lambda item: min(item[0]))]
