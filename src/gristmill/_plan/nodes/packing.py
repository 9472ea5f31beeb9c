"""Nodes that pack documents of different lengths into rows of one length."""

import enum
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast, final

from gristmill._base.checks import as_int
from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.trees.tree import map_leaves
from gristmill._plan.nodes.stream import HoldingNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Tree

Path: TypeAlias = tuple[Hashable, ...]
"""The keys that lead from an element to a feature: one, or more for a nested meta feature."""


class BOSHandling(enum.Enum):
    """What to do with the first token of each document, or part of one, in a row.

    >>> import numpy as np
    >>> from gristmill import MapDataset
    >>> from gristmill.experimental import ConcatThenSplitIterDataset
    >>> documents = MapDataset.source([{"tokens": np.array([5, 6, 7])}] * 2).to_iter_dataset()
    >>> rows = ConcatThenSplitIterDataset(
    ...     documents,
    ...     length_struct={"tokens": 3},
    ...     bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
    ...     bos_features={"tokens"},
    ...     bos_token_id=1,
    ... )
    >>> [row["tokens"].tolist() for row in rows]
    [[1, 6, 7], [1, 6, 7]]
    """

    DO_NOTHING = enum.auto()
    """Keep it."""
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()
    """Replace it by the token for the beginning of a sequence."""


@final
@frozen_dataclass
class PackedFeature:
    """A feature of the elements, and the rows that its values are packed into."""

    path: Path
    length: int
    """The length of a row."""
    alignment: int = 1
    """Each document starts at a multiple of this."""
    padding: Any = None
    """The value where there is no document. `None` means zero."""
    is_meta: bool = False
    """Whether it has no segment ids and positions."""

    @property
    def name(self) -> str:
        """The feature as in the user's code."""
        return "".join(
            [str(key) for key in self.path[:1]] + [f"[{key!r}]" for key in self.path[1:]]
        )


@final
@frozen_dataclass
class PackNode(HoldingNode):
    """Documents in bins, which become rows as soon as a document fits into none of them."""

    length_struct: Tree
    features: tuple[PackedFeature, ...]
    """The leaves of `length_struct`."""
    listed_features: tuple[str, ...]
    """Features that are not packed: a row has the list of the values of its documents."""
    num_bins: int
    is_best_fit: bool
    """Whether a document is put into the fullest bin that has room, instead of the first."""
    shuffles_bins: bool
    seed: int
    group_by: str | None
    """If set, bins are shuffled within groups, in the order of this feature's mean value."""
    max_documents: int | None
    """The largest number of documents in a bin."""

    def __post_init__(self) -> None:
        as_int("num_packing_bins", self.num_bins, minimum=1)
        if self.max_documents is not None:
            as_int("max_sequences_per_bin", self.max_documents, minimum=1)
        if self.shuffles_bins:
            as_int("seed", self.seed)
        names = output_names(self.features, self.listed_features)
        if self.group_by is not None and self.group_by not in names:
            raise PlanError(
                f"`shuffle_bins_group_by_feature` must be one of {', '.join(names)}, got "
                f"{self.group_by!r}."
            )

    @property
    def label(self) -> str:
        kind = "BestFitPack" if self.is_best_fit else "FirstFitPack"
        return f"{kind}({_sizes(self.features)}, num_packing_bins={self.num_bins})"

    @property
    def yields_batches(self) -> bool:
        return False

    @property
    def description(self) -> str:
        return f"{self.label} (seed={self.seed})"

    @property
    def batch_size(self) -> None:
        return None


@final
@frozen_dataclass
class ConcatSplitNode(HoldingNode):
    """Documents one after the other, split wherever a row is full."""

    features: tuple[PackedFeature, ...]
    splits_full_length: bool
    """Whether a document that fills a row on its own is split like others, or kept as a row."""
    bos_features: frozenset[str]
    """Features whose documents, and parts of documents, start with `bos_token`."""
    bos_token: int | None

    def __post_init__(self) -> None:
        output_names(self.features, ())

    @property
    def label(self) -> str:
        return f"ConcatThenSplit({_sizes(self.features)})"

    @property
    def yields_batches(self) -> bool:
        return False

    @property
    def batch_size(self) -> None:
        return None


def packed_features(
    length_struct: Tree,
    *,
    meta_features: Collection[str],
    alignments: Tree = None,
    paddings: Tree = None,
) -> tuple[Tree, tuple[PackedFeature, ...]]:
    """Check the lengths of rows, and return them as a new tree and feature by feature.

    >>> packed_features({"tokens": 8}, meta_features=())[1][0].length
    8
    """
    if not isinstance(length_struct, Mapping) or not length_struct:
        raise PlanTypeError(
            "`length_struct` must be a dict from features to lengths of a row, got "
            f"{length_struct!r}. Write `length_struct={{'tokens': 2048}}`."
        )
    features: list[PackedFeature] = []
    for path, length in _leaves(cast("Mapping[Hashable, Tree]", length_struct)):
        shown = "".join(f"[{key!r}]" for key in path)
        is_meta = path[0] in meta_features
        if len(path) > 1 and not is_meta:
            raise PlanError(
                f"`length_struct` has more than one length under {path[0]!r}, but only arrays "
                "have segment ids. Flatten the feature in a map before packing, or add it to "
                "`meta_features`, which have no segment ids."
            )
        alignment = 1 if alignments is None else _at(alignments, path, "pack_alignment_struct")
        features.append(
            PackedFeature(
                path=path,
                length=as_int(f"length_struct{shown}", length, minimum=1),
                alignment=as_int(f"pack_alignment_struct{shown}", alignment, minimum=1),
                padding=None if paddings is None else _at(paddings, path, "padding_struct"),
                is_meta=is_meta,
            )
        )
    # A copy, because the user may change the dict later.
    return map_leaves(int, length_struct), tuple(features)


def tree_features(length_struct: Tree) -> tuple[PackedFeature, ...]:
    """Return the features of a tree of any structure, whose leaves are lengths of a row.

    >>> [feature.name for feature in tree_features({"a": 8, "b": [4, 2]})]
    ['a', 'b[0]', 'b[1]']
    """
    return tuple(
        PackedFeature(path=path, length=as_int("length_struct", length, minimum=1))
        for path, length in _leaves(length_struct)
    )


def output_names(features: Sequence[PackedFeature], listed: Sequence[str]) -> list[str]:
    """Return the names of the features of a row, which must be unique.

    >>> output_names(packed_features({"x": 8}, meta_features=())[1], ["id"])
    ['x', 'x_segment_ids', 'x_positions', 'id']
    """
    names: list[Any] = []
    for feature in features:
        name = feature.path[0]
        if feature.is_meta:
            names += [] if len(feature.path) > 1 and name in names else [name]
        else:
            names += [name, f"{name}_segment_ids", f"{name}_positions"]
    names += listed
    twice = sorted({name for name in names if names.count(name) > 1}, key=str)
    if twice:
        raise PlanError(
            f"Rows would have {twice[0]!r} twice: as a feature, and as one that packing adds. "
            "Rename the feature in a map before packing."
        )
    return names


def _leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(tree, Mapping):
        for key, child in cast("Mapping[Hashable, Tree]", tree).items():
            yield from _leaves(child, (*path, key))
    elif isinstance(tree, list | tuple):
        for number, child in enumerate(cast("Sequence[Tree]", tree)):
            yield from _leaves(child, (*path, number))
    else:
        yield path, tree


def _at(tree: Tree, path: Path, name: str) -> Any:
    try:
        for key in path:
            tree = tree[key]
    except (KeyError, IndexError, TypeError):
        raise PlanError(
            f"`{name}` must have the structure of `length_struct`, but has no value at "
            f"{''.join(f'[{key!r}]' for key in path)}."
        ) from None
    return tree


def _sizes(features: Sequence[PackedFeature]) -> str:
    return ", ".join(f"{feature.name}={feature.length}" for feature in features)
