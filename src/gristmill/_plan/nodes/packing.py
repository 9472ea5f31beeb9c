"""Nodes that lay documents of different lengths into rows of one length."""

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

from gristmill._base.checks import as_int
from gristmill._base.tree import map_leaves
from gristmill._plan.nodes.stream import StatefulNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Tree

Path: TypeAlias = tuple[Any, ...]
"""The keys that lead from an element to a feature: one, or more for a nested meta feature."""


class BOSHandling(enum.Enum):
    """What to do with the first token of each piece in a row."""

    DO_NOTHING = enum.auto()
    """Leave it."""
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()
    """Put the token of a beginning in its place."""


@final
@dataclass(frozen=True, kw_only=True)
class PackedFeature:
    """A feature of the elements, and the rows its values go into."""

    path: Path
    length: int
    """How long a row is."""
    alignment: int = 1
    """Each document begins at a multiple of this."""
    padding: Any = None
    """What stands where no document does; `None` is zero."""
    is_meta: bool = False
    """Whether it goes without segment ids and positions."""

    @property
    def name(self) -> str:
        """The feature as the user would write it."""
        return "".join(
            [str(key) for key in self.path[:1]] + [f"[{key!r}]" for key in self.path[1:]]
        )


@final
@dataclass(frozen=True, kw_only=True)
class PackNode(StatefulNode):
    """Documents in bins, which become rows once a document fits into none of them."""

    length_struct: Tree
    features: tuple[PackedFeature, ...]
    """The leaves of `length_struct`."""
    listed_features: tuple[str, ...]
    """Features that are not packed: a row has the list of what its documents had."""
    num_bins: int
    is_best_fit: bool
    """Whether a document goes into the fullest bin that has room, instead of the first."""
    shuffles_bins: bool
    seed: int
    group_by: str | None
    """The shuffle is then within groups, which come in the order of this feature's mean value."""
    max_documents: int | None
    """How many documents a bin takes at most."""

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


@final
@dataclass(frozen=True, kw_only=True)
class ConcatSplitNode(StatefulNode):
    """Documents one after the other, cut wherever a row is full."""

    features: tuple[PackedFeature, ...]
    splits_full_length: bool
    """Whether a document that fills a row by itself is cut like others; else it passes as it is."""
    bos_features: frozenset[str]
    """Features whose pieces begin with `bos_token`."""
    bos_token: int | None

    def __post_init__(self) -> None:
        output_names(self.features, ())

    @property
    def label(self) -> str:
        return f"ConcatThenSplit({_sizes(self.features)})"


def packed_features(
    length_struct: Any,
    *,
    meta_features: Collection[str],
    alignments: Any = None,
    paddings: Any = None,
) -> tuple[Tree, tuple[PackedFeature, ...]]:
    """Check how long rows are, and give that as a tree of its own and feature by feature.

    >>> packed_features({"tokens": 8}, meta_features=())[1][0].length
    8
    """
    if not isinstance(length_struct, Mapping) or not length_struct:
        raise PlanTypeError(
            "`length_struct` must be a dict from features to lengths of a row, got "
            f"{length_struct!r}. Write `length_struct={{'tokens': 2048}}`."
        )
    features: list[PackedFeature] = []
    for path, length in _leaves(cast("Mapping[Any, Any]", length_struct)):
        shown = "".join(f"[{key!r}]" for key in path)
        is_meta = path[0] in meta_features
        if len(path) > 1 and not is_meta:
            raise PlanError(
                f"`length_struct` has more than one length under {path[0]!r}, and segment ids are "
                "made for arrays only. Flatten the feature in a map before, or add it to "
                "`meta_features`, which have none."
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
    # A copy: the dict is the user's, who may change it.
    return map_leaves(int, length_struct), tuple(features)


def tree_features(length_struct: Tree) -> tuple[PackedFeature, ...]:
    """Give the features of a tree of any shape, whose leaves are lengths of a row.

    >>> [feature.name for feature in tree_features({"a": 8, "b": [4, 2]})]
    ['a', 'b[0]', 'b[1]']
    """
    return tuple(
        PackedFeature(path=path, length=as_int("length_struct", length, minimum=1))
        for path, length in _leaves(length_struct)
    )


def output_names(features: Sequence[PackedFeature], listed: Sequence[str]) -> list[str]:
    """Give the names that rows have, none of them twice.

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
            f"Rows would have {twice[0]!r} twice, as a feature and as what packing adds. Rename "
            "the feature in a map before."
        )
    return names


def _leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(tree, Mapping):
        for key, child in cast("Mapping[Any, Any]", tree).items():
            yield from _leaves(child, (*path, key))
    elif isinstance(tree, list | tuple):
        for number, child in enumerate(cast("Sequence[Any]", tree)):
            yield from _leaves(child, (*path, number))
    else:
        yield path, tree


def _at(tree: Any, path: Path, name: str) -> Any:
    try:
        for key in path:
            tree = tree[key]
    except (KeyError, IndexError, TypeError):
        raise PlanError(
            f"`{name}` must be like `length_struct`, and has nothing at "
            f"{''.join(f'[{key!r}]' for key in path)}."
        ) from None
    return tree


def _sizes(features: Sequence[PackedFeature]) -> str:
    return ", ".join(f"{feature.name}={feature.length}" for feature in features)
