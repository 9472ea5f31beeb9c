"""Packing for language models: documents of different lengths into rows of one length."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, final

from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_batch_size, as_bool, as_int
from gristmill._data.sampling.record import Record
from gristmill._engine.stateful.packing.pack_and_batch import pack_and_batch
from gristmill._plan.nodes.packing import BOSHandling, ConcatSplitNode, PackNode, packed_features
from gristmill.errors import PlanError, PlanTypeError

T = TypeVar("T")


class _BinPackIterDataset(PlannedIterDataset[dict[str, Any]]):
    """Packs documents into bins. Subclasses determine which bin a document goes into."""

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
    """Packs each document into the first of several bins that has room for it.

    When a document fits into none of the bins, the bins are emitted as rows, and the document
    starts the next bins. For each feature of `length_struct` a row has an array of that length,
    `<name>_segment_ids`, which number the documents of the row from 1 (0 is padding), and
    `<name>_positions` within the documents. More bins mean less padding. A row is a function of the
    documents and the seed. The state holds the positions of the documents in the open bins, not
    their tokens.

    >>> import numpy as np
    >>> from gristmill import MapDataset
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
        parent: A stream of documents: dicts of arrays or scalars. A scalar has length 1.
        length_struct: The length of a row, for each feature. Features without a length are left
            out.
        num_packing_bins: The number of bins that are filled at a time.
        seed: The seed of the order of bins.
        shuffle_bins: Whether to emit the bins in a random order, or in the order they were opened.
        shuffle_bins_group_by_feature: A feature to order the bins by: bins are sorted by the mean
            of its distinct values, and shuffled where these are equal.
        meta_features: Features without segment ids and positions. A meta feature that is not in
            `length_struct` is not packed: a row has the list of its values, one per document.
        pack_alignment_struct: For each feature, a number that the start of each document is a
            multiple of.
        padding_struct: For each feature, the value of padding. By default 0.
        max_sequences_per_bin: The maximum number of documents in a bin. By default there is none.

    Raises:
        PlanError: If a value is out of bounds, or a feature has no length.
        PlanTypeError: If an argument has the wrong type.
    """

    _is_best_fit = False


class BestFitPackIterDataset(_BinPackIterDataset):
    """Packs each document into the fullest of several bins that has room for it.

    This leaves less padding than `FirstFitPackIterDataset`, at the same cost. The arguments and
    all else are the same.

    >>> import numpy as np
    >>> from gristmill import MapDataset
    >>> ds = MapDataset.source([2, 3, 1]).map(lambda n: {"x": np.full(n, n)}).to_iter_dataset()
    >>> packed = BestFitPackIterDataset(
    ...     ds, length_struct={"x": 4}, num_packing_bins=2, shuffle_bins=False
    ... )
    >>> [row["x"].tolist() for row in packed]
    [[2, 2, 0, 0], [3, 3, 3, 1]]

    Raises:
        PlanError: If a value is out of bounds, or a feature has no length.
        PlanTypeError: If an argument has the wrong type.
    """

    _is_best_fit = True


class ConcatThenSplitIterDataset(PlannedIterDataset[dict[str, Any]]):
    """Concatenates documents, and splits the result wherever a row is full.

    With one feature only the last row is padded. With several, a row ends where the first of them
    is full, and the others are padded. Every feature of the elements needs a length.

    >>> import numpy as np
    >>> from gristmill import MapDataset
    >>> ds = MapDataset.source([3, 2, 4]).map(lambda n: {"x": np.full(n, n)}).to_iter_dataset()
    >>> for row in ConcatThenSplitIterDataset(ds, length_struct={"x": 4}):
    ...     print(row["x"], row["x_segment_ids"], row["x_positions"])
    [3 3 3 2] [1 1 1 2] [0 1 2 0]
    [2 4 4 4] [1 2 2 2] [0 0 1 2]
    [4 0 0 0] [1 0 0 0] [0 0 0 0]

    Args:
        parent: A stream of documents: flat dicts of arrays or scalars.
        length_struct: The length of a row, for each feature.
        meta_features: Features that are not split: each row that contains a fragment of a document
            has the whole value. They have no segment ids and positions.
        split_full_length_features: Whether a document that fills a whole row is split like others.
            If not, it becomes a row of its own, after the one that is open.
        bos_handling: Whether the first token of each fragment in a row is replaced by
            `bos_token_id`.
        bos_features: The features of which it is replaced.
        bos_token_id: The token that marks the beginning of a sequence.

    Raises:
        PlanError: If `length_struct` is nested or out of bounds, or the arguments about the
            beginning of a sequence contradict each other.
        PlanTypeError: If an argument has the wrong type.
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
        metas = _as_names("meta_features", meta_features)
        starts = _as_names("bos_features", bos_features)
        _, features = packed_features(length_struct, meta_features=metas)
        nested = [feature.name for feature in features if len(feature.path) > 1]
        if nested:
            raise PlanError(
                f"`length_struct` must be flat, got the nested feature {nested[0]}. Flatten the "
                "elements with a `map` before packing."
            )
        _check_bos(bos_handling, starts, bos_token_id, metas)
        node = ConcatSplitNode(
            site=call_site(),
            parent=plan_of(parent),
            features=features,
            splits_full_length=as_bool("split_full_length_features", split_full_length_features),
            bos_features=frozenset(starts),
            bos_token=bos_token_id,
        )
        super().__init__(node, (parent,))


@final
@dataclass
class PackAndBatchOperation(Generic[T]):
    """Packs records by first fit, and yields all bins as one batch.

    This is the operation of Grain's older API. It is called with an iterator of records, and
    yields records whose data are three trees: values, segment ids and positions, each with
    `batch_size` rows. Among the operations of a `DataLoader` it can be resumed at any batch.

    >>> import numpy as np
    >>> from gristmill import Record, RecordMetadata
    >>> records = [Record(RecordMetadata(index=n), {"x": np.full(n, n)}) for n in (1, 2, 3)]
    >>> (packed,) = PackAndBatchOperation({"x": 4}, batch_size=2)(iter(records))
    >>> packed.metadata.index, packed.data[0]["x"].tolist()
    (3, [[1, 2, 2, 0], [3, 3, 3, 0]])

    Args:
        length_struct: The length of a row, for each leaf of the records.
        batch_size: The number of rows of a batch.
        max_sequences_per_bin: The maximum number of records in a row. By default there is none.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If an argument has the wrong type.
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None
    _cur_batch: None = None  # the fourth argument in Grain, where it holds the open batch

    def __post_init__(self) -> None:
        self.batch_size = as_batch_size(self.batch_size)
        if self.max_sequences_per_bin is not None:
            as_int("max_sequences_per_bin", self.max_sequences_per_bin, minimum=1)

    def __call__(self, input_iterator: Iterator[Record[T]]) -> Iterator[Record[tuple[T, T, T]]]:
        yield from pack_and_batch(
            input_iterator,
            length_struct=self.length_struct,
            batch_size=self.batch_size,
            max_documents=self.max_sequences_per_bin,
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
    metas = _as_names("meta_features", meta_features)
    lengths, features = packed_features(
        length_struct,
        meta_features=metas,
        alignments=pack_alignment_struct,
        paddings=padding_struct,
    )
    return PackNode(
        site=call_site(),
        parent=plan_of(parent),
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


def _as_names(argument: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the names of features without duplicates. A string is not a collection of names."""
    if isinstance(names, str):
        raise PlanTypeError(f"`{argument}` must be a list, got {names!r}. Put it in brackets.")
    return tuple(dict.fromkeys(names))


def _check_bos(
    handling: BOSHandling, features: Collection[str], token: int | None, metas: Collection[str]
) -> None:
    if handling is BOSHandling.DO_NOTHING and (token is not None or features):
        raise PlanError(
            "`bos_token_id` and `bos_features` have no effect with `bos_handling` DO_NOTHING. "
            "Leave them out, or pass `bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS`."
        )
    if handling is not BOSHandling.DO_NOTHING and token is None:
        raise PlanError(f"`bos_handling` {handling.name} needs a token. Pass `bos_token_id=`.")
    both = sorted(set(features) & set(metas))
    if both:
        raise PlanError(
            f"{both[0]!r} is in `bos_features` and in `meta_features`, which are not split. Remove "
            "it from one of them."
        )
