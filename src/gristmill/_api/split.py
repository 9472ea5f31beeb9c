"""`split` and `k_fold`: disjoint parts of a source."""

from collections.abc import Sequence
from typing import Any

from gristmill._api.plan_access import source_node
from gristmill._base.checks import as_seed
from gristmill._data.sampling.labels import Labels, as_classes, as_labels
from gristmill._data.sampling.splits import SplitPart, fold_parts, split_parts
from gristmill._data.sources.split import SplitSource
from gristmill.errors import PlanError
from gristmill.types import Element, Indices, RandomAccessDataSource


def split(
    source: RandomAccessDataSource[Element],
    fractions: Sequence[float],
    *,
    seed: int,
    stratify: Labels | None = None,
) -> tuple[SplitSource, ...]:
    """Split a source into disjoint parts, each of which is a source.

    Which records belong to a part is a function of the seed and the number of records. The records
    of a part are in a fixed random order. A part needs no memory, unless `stratify` is given (4
    bytes for each record of the source).

    >>> train, test = split(range(10), [0.8, 0.2], seed=0)
    >>> sorted([*train, *test])
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

    Args:
        source: A source. Split a `MapDataset` with its own method, `MapDataset.split`.
        fractions: A fraction of the records for each part, which add up to 1; or the number of
            records of each part, which add up to all.
        seed: The seed of the split.
        stratify: If given, each part has its share of every class, to within a record or two. The
            class of each record as an array or list, the key of a column, or a function of a
            record. With a key or a function, this call reads all records; of a source with columns,
            only that column.

    Returns:
        A source for each part.

    Raises:
        PlanError: The fractions do not add up to 1, or a part would be empty.
    """
    records = _records_of(source)
    classes = _classes_of(records, stratify)
    return _as_sources(
        records, split_parts(len(records), fractions, seed=as_seed(seed), classes=classes)
    )


def k_fold(
    source: RandomAccessDataSource[Element],
    k: int,
    i: int,
    *,
    seed: int,
    stratify: Labels | None = None,
) -> tuple[SplitSource, SplitSource]:
    """Return all folds of a source but one, to train on, and that fold, to test on.

    >>> for i in range(3):
    ...     train, test = k_fold(list("abcdef"), 3, i, seed=0)
    ...     print(sorted(test))
    ['a', 'e']
    ['b', 'c']
    ['d', 'f']

    Args:
        source: A source. Split a `MapDataset` with its own method, `MapDataset.k_fold`.
        k: The number of folds, at least 2.
        i: The fold to test on, from 0 to `k - 1`.
        seed: The seed of the folds. Use the same one for all of them.
        stratify: If given, each fold has its share of every class; see `split`.

    Returns:
        The sources of the other folds together, and of fold `i`.

    Raises:
        PlanError: `k` is larger than the number of records, or `i` is not below `k`.
    """
    records = _records_of(source)
    classes = _classes_of(records, stratify)
    others, fold = _as_sources(
        records, fold_parts(len(records), k, i, seed=as_seed(seed), classes=classes)
    )
    return others, fold


def _records_of(source: Any) -> RandomAccessDataSource[Element]:
    records = source_node(source).source
    if not len(records):
        raise PlanError("`source` is empty. Pass at least one record.")
    return records


def _classes_of(
    records: RandomAccessDataSource[Element], stratify: Labels | None
) -> Indices | None:
    return None if stratify is None else as_classes(as_labels("stratify", stratify, records))[0]


def _as_sources(
    records: RandomAccessDataSource[Element], parts: Sequence[SplitPart]
) -> tuple[SplitSource, ...]:
    return tuple(SplitSource(records, part) for part in parts)
