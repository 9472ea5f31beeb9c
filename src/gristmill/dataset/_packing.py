"""Packing for language models: documents of different lengths in rows of one length."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, final

from gristmill._check import as_bool, as_int
from gristmill._site import call_site
from gristmill.dataset._iter import IterDataset, PlannedIterDataset
from gristmill.errors import PlanError, PlanTypeError
from gristmill.execute import pack_and_batch
from gristmill.order import Record
from gristmill.plan import BOSHandling, ConcatSplitNode, PackNode, packed_features

T = TypeVar("T")


class _BinPackIterDataset(PlannedIterDataset[Any]):
    """Packs documents into bins; which one a document goes into is for its kinds to say."""

    _is_best_fit: ClassVar[bool]

    def __init__(
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Any,
        num_packing_bins: int,
        seed: int = 0,
        shuffle_bins: bool = True,
        shuffle_bins_group_by_feature: str | None = None,
        meta_features: Sequence[str] = (),
        pack_alignment_struct: Any = None,
        padding_struct: Any = None,
        max_sequences_per_bin: int | None = None,
    ) -> None:
        node = _pack_node(
            parent,
            is_best_fit=self._is_best_fit,
            length_struct=length_struct,
            num_packing_bins=num_packing_bins,
            seed=seed,
            shuffle_bins=shuffle_bins,
            group_by=shuffle_bins_group_by_feature,
            meta_features=meta_features,
            pack_alignment_struct=pack_alignment_struct,
            padding_struct=padding_struct,
            max_sequences_per_bin=max_sequences_per_bin,
        )
        super().__init__(node, (parent,))


class FirstFitPackIterDataset(_BinPackIterDataset):
    """Packs each document into the first of some bins with room for it.

    Once a document fits into none, the bins are given as rows, in a shuffled order unless
    `shuffle_bins` is false, and it begins the next ones. Features in `length_struct` become arrays
    of that length, with `<name>_segment_ids` that number the documents of a row from 1 on, and
    `<name>_positions`. More bins mean less padding.

    >>> import numpy as np
    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.source([3, 2, 1, 4]).map(lambda n: {"x": np.full(n, n)}).to_iter_dataset()
    >>> packed = FirstFitPackIterDataset(
    ...     ds, length_struct={"x": 4}, num_packing_bins=2, shuffle_bins=False
    ... )
    >>> for row in packed:
    ...     print(row["x"], row["x_segment_ids"], row["x_positions"])
    [3 3 3 1] [1 1 1 2] [0 1 2 0]
    [2 2 0 0] [1 1 0 0] [0 1 0 0]
    [4 4 4 4] [1 1 1 1] [0 1 2 3]

    Args:
        parent: The documents: dicts of arrays, or of scalars, which are documents of length 1.
        length_struct: For each feature, how long a row is. Others are left out.
        num_packing_bins: How many bins are filled at a time.
        seed: What the order of the bins is drawn from, with the number of rows before them.
        shuffle_bins: Whether bins come in that order, or as they were opened.
        shuffle_bins_group_by_feature: Bins come in the order of the mean of the different values
            that this feature has in them, and those with the same in the order drawn.
        meta_features: Features without ids and positions. Those that are not in `length_struct`
            are not packed: a row has the list of its documents' values.
        pack_alignment_struct: For each feature, the number of which the place where a document
            begins is a multiple.
        padding_struct: For each feature, what stands where no document does, instead of zero.
        max_sequences_per_bin: How many documents a bin takes at most.
    """

    _is_best_fit = False


class BestFitPackIterDataset(_BinPackIterDataset):
    """Packs each document into the fullest of some bins that has room for it.

    That leaves less padding than the first bin with room, at the same cost. All else is as in
    `FirstFitPackIterDataset`.

    >>> import numpy as np
    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.source([2, 3, 1]).map(lambda n: {"x": np.full(n, n)}).to_iter_dataset()
    >>> packed = BestFitPackIterDataset(
    ...     ds, length_struct={"x": 4}, num_packing_bins=2, shuffle_bins=False
    ... )
    >>> [row["x"].tolist() for row in packed]
    [[2, 2, 0, 0], [3, 3, 3, 1]]
    """

    _is_best_fit = True


class ConcatThenSplitIterDataset(PlannedIterDataset[Any]):
    """Lays documents end to end and cuts wherever a row is full.

    With one feature nothing is padded but the last row. With more, a row ends where the first of
    them is full, and the others are padded. Every feature of the elements needs a length.

    >>> import numpy as np
    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.source([3, 2, 4]).map(lambda n: {"x": np.full(n, n)}).to_iter_dataset()
    >>> for row in ConcatThenSplitIterDataset(ds, length_struct={"x": 4}):
    ...     print(row["x"], row["x_segment_ids"], row["x_positions"])
    [3 3 3 2] [1 1 1 2] [0 1 2 0]
    [2 4 4 4] [1 2 2 2] [0 0 1 2]
    [4 0 0 0] [1 0 0 0] [0 0 0 0]

    Args:
        parent: The documents: flat dicts of arrays, or of scalars.
        length_struct: For each feature, how long a row is.
        meta_features: Features that are not cut, but are in each row that has a piece of their
            document; they have no ids and positions.
        split_full_length_features: Whether a document that fills a row by itself is cut like
            others. If not, it becomes a row of its own, after the one that is open.
        bos_handling: Whether each piece in a row begins with `bos_token_id`.
        bos_features: The features of which it does.
        bos_token_id: That token.
    """

    def __init__(
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Mapping[str, int],
        meta_features: Collection[str] = (),
        split_full_length_features: bool = True,
        bos_handling: BOSHandling = BOSHandling.DO_NOTHING,
        bos_features: Collection[str] = (),
        bos_token_id: int | None = None,
    ) -> None:
        metas, starred = (
            _names("meta_features", meta_features),
            _names("bos_features", bos_features),
        )
        _, features = packed_features(length_struct, meta_features=metas)
        nested = [feature.name for feature in features if len(feature.path) > 1]
        if nested:
            raise PlanError(
                f"`length_struct` must be flat, and has {nested[0]}. Flatten the elements in a map "
                "before."
            )
        _check_bos(bos_handling, starred, bos_token_id, metas)
        node = ConcatSplitNode(
            site=call_site(),
            parents=(parent.node,),
            features=features,
            splits_full_length=as_bool("split_full_length_features", split_full_length_features),
            bos_features=frozenset(starred),
            bos_token=bos_token_id,
        )
        super().__init__(node, (parent,))


@final
@dataclass
class PackAndBatchOperation(Generic[T]):
    """Packs records by first fit, and gives all bins as one batch: Grain's older spelling.

    Called with an iterator of records it gives records of three trees: values, segment ids and
    positions, each of `batch_size` rows. Use `FirstFitPackIterDataset`, which can be resumed.

    >>> import numpy as np
    >>> from gristmill.order import Record, RecordMetadata
    >>> records = [Record(RecordMetadata(index=n), {"x": np.full(n, n)}) for n in (1, 2, 3)]
    >>> (packed,) = PackAndBatchOperation({"x": 4}, batch_size=2)(iter(records))
    >>> packed.metadata.index, packed.data[0]["x"].tolist()
    (3, [[1, 2, 2, 0], [3, 3, 3, 0]])
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None
    _cur_batch: None = None  # Grain's fourth argument, which holds what is open there

    def __post_init__(self) -> None:
        self.batch_size = as_int("batch_size", self.batch_size, minimum=1)
        if self.max_sequences_per_bin is not None:
            as_int("max_sequences_per_bin", self.max_sequences_per_bin, minimum=1)

    def __call__(self, input_iterator: Iterator[Record[T]]) -> Iterator[Record[tuple[T, T, T]]]:
        yield from pack_and_batch(
            input_iterator,
            length_struct=self.length_struct,
            batch_size=self.batch_size,
            most=self.max_sequences_per_bin,
        )


def _pack_node(
    parent: IterDataset[Any],
    *,
    is_best_fit: bool,
    length_struct: Any,
    num_packing_bins: int,
    seed: int,
    shuffle_bins: bool,
    group_by: str | None,
    meta_features: Sequence[str],
    pack_alignment_struct: Any,
    padding_struct: Any,
    max_sequences_per_bin: int | None,
) -> PackNode:
    metas = _names("meta_features", meta_features)
    lengths, features = packed_features(
        length_struct,
        meta_features=metas,
        alignments=pack_alignment_struct,
        paddings=padding_struct,
    )
    return PackNode(
        site=call_site(),
        parents=(parent.node,),
        length_struct=lengths,
        features=features,
        listed_features=tuple(name for name in metas if name not in lengths),
        num_bins=num_packing_bins,
        is_best_fit=is_best_fit,
        shuffles_bins=as_bool("shuffle_bins", shuffle_bins),
        seed=seed,
        group_by=group_by,
        max_documents=max_sequences_per_bin,
    )


def _names(argument: str, names: Collection[str]) -> tuple[str, ...]:
    """Take names of features, each once; of a text alone the letters would be taken."""
    if isinstance(names, str):
        raise PlanTypeError(f"`{argument}` must be a list, got {names!r}. Put it in brackets.")
    return tuple(dict.fromkeys(names))


def _check_bos(
    handling: BOSHandling, features: Collection[str], token: int | None, metas: Collection[str]
) -> None:
    if handling is BOSHandling.DO_NOTHING and (token is not None or features):
        raise PlanError(
            "`bos_token_id` and `bos_features` have nothing to do with `bos_handling` "
            "DO_NOTHING. Leave them out, or pass "
            "`bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS`."
        )
    if handling is not BOSHandling.DO_NOTHING and token is None:
        raise PlanError(f"`bos_handling` {handling.name} needs a token. Pass `bos_token_id=`.")
    both = sorted(set(features) & set(metas))
    if both:
        raise PlanError(
            f"{both[0]!r} is in `bos_features` and in `meta_features`, which are not cut. Take it "
            "out of one."
        )
