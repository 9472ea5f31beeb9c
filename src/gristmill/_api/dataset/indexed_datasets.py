"""Datasets with random access that combine several others, or change the order of one."""

from collections.abc import Sequence
from typing import TypeVar

from gristmill._api.dataset.map_dataset import MapDataset, PlannedMapDataset, as_datasets
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_int, as_seed
from gristmill._plan.nodes.combine import ZipNode
from gristmill._plan.nodes.rearrange import WindowShuffleNode

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WindowShuffleMapDataset(PlannedMapDataset[T_co]):
    """Shuffles the elements within consecutive windows.

    The order is a function of the seed and the number of the window; it costs no memory.

    >>> list(WindowShuffleMapDataset(MapDataset.range(6), window_size=3, seed=1))
    [1, 2, 0, 3, 5, 4]

    Args:
        parent: The dataset to shuffle.
        window_size: The number of elements of a window, at least 1.
        seed: The seed.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If `window_size` or `seed` is not an integer.
    """

    def __init__(self, parent: MapDataset[T_co], *, window_size: int, seed: int) -> None:
        node = WindowShuffleNode(
            site=call_site(),
            parent=plan_of(parent),
            window=as_int("window_size", window_size, minimum=1),
            seed=as_seed(seed),
        )
        super().__init__(node, (parent,))


class ZipMapDataset(PlannedMapDataset[tuple[T, ...]]):
    """Combines the elements at the same index of several datasets into tuples.

    >>> list(ZipMapDataset([MapDataset.range(2), MapDataset.range(7, 9)]))
    [(0, 7), (1, 8)]

    Args:
        parents: The datasets to combine, all of the same length.

    Raises:
        PlanError: If there are no parents, or they have different lengths.
        PlanTypeError: If a parent is not a `MapDataset`.
    """

    def __init__(self, parents: Sequence[MapDataset[T]]) -> None:
        datasets = as_datasets(parents)
        nodes = tuple(map(plan_of, datasets))
        super().__init__(ZipNode(site=call_site(), inputs=nodes), datasets)
