"""Converts Hugging Face datasets, with random access or streaming, to gristmill datasets."""

import sys

from gristmill._api.adapters.huggingface.formats import HfDataset, check_format, make_column_specs
from gristmill._api.adapters.huggingface.source import DatasetSource, TransformedSource
from gristmill._api.adapters.huggingface.stream import make_stream
from gristmill._api.adapters.huggingface.values import load_pillow
from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._base.call_site import call_site
from gristmill._base.extras import load_extra
from gristmill._plan.nodes.stream import RecordStreamNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element


def from_huggingface(
    dataset: HfDataset, *, split: str | None = None
) -> MapDataset[dict[str, Element]] | IterDataset[dict[str, Element]]:
    """Convert a Hugging Face dataset to a gristmill dataset whose elements are dicts.

    A `Dataset` is read from its Arrow tables, many rows at a time, in the order that `shuffle`,
    `select`, `sort` and similar methods left. Numbers are NumPy scalars of the stored type. A list
    of numbers is an array, and a feature of a fixed shape (`Array2D`, ...) an array of that shape.
    Images (`Image`) are decoded to arrays. Strings and bytes are Python objects, and a null is
    None.

    The format of the dataset is respected. With `with_format("numpy")` an element equals
    `dataset[i]`, including dtypes, with two exceptions: scalars are never arrays without axes, and
    strings and bytes keep trailing NULs. The formats "torch", "jax" and "tensorflow" return the
    same values as NumPy arrays, since gristmill transfers batches to devices itself. A transform
    (`set_transform`) is called with blocks of rows of any size and must treat each row separately.

    A streaming `IterableDataset` becomes an `IterDataset` that resumes from the dataset's own
    state. If the dataset uses a shuffle buffer, which its state does not include, it resumes by
    reading the rows before again. Pass a seed to its `shuffle` for a resumed run to continue
    exactly.

    >>> import datasets
    >>> rows = datasets.Dataset.from_dict({"x": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]})
    >>> ds = from_huggingface(rows.select([2, 0, 1]))
    >>> ds[0]
    {'x': array([5, 6]), 'label': np.int64(0)}
    >>> [batch["label"].tolist() for batch in ds.batch(2)]
    [[0, 0], [1]]

    Args:
        dataset: A `Dataset`, an `IterableDataset`, or a dict of them by split (`DatasetDict`,
            `IterableDatasetDict`).
        split: The split to read, required for a dict and not allowed otherwise.

    Returns:
        A `MapDataset`, or an `IterDataset` if the dataset is streaming.

    Raises:
        PlanTypeError: If `dataset` is not a Hugging Face dataset.
        PlanError: If `split` does not match `dataset`, or the format returns tables.
    """
    selected = _select_split(dataset, split)
    if _is_a(selected, "IterableDataset"):
        node = RecordStreamNode(site=call_site(), stream=make_stream(selected))
        return PlannedIterDataset(node, ())
    kind = selected.format["type"]
    check_format(kind)
    if kind == "custom":
        return MapDataset.source(TransformedSource(selected))
    specs = make_column_specs(selected)
    if any(spec.kind == "images" for spec in specs):
        load_pillow()  # fail here rather than in a worker
    return MapDataset.source(DatasetSource(selected, specs))


def _select_split(dataset: HfDataset, split: str | None) -> HfDataset:
    """Return the dataset of a split, or raise an error that describes what to pass."""
    if isinstance(dataset, str):
        raise PlanTypeError(
            f"`dataset` is the string {dataset!r}. Pass the dataset itself, as in "
            f"`from_huggingface(datasets.load_dataset({dataset!r}, split='train'))`."
        )
    load_extra("datasets", extra="huggingface", wanted_by="`from_huggingface`")
    if _is_a(dataset, "DatasetBuilder"):
        raise PlanTypeError(
            "`dataset` is a builder. Pass the dataset that it builds: call "
            "`builder.download_and_prepare()`, and pass `builder.as_dataset(split='train')`."
        )
    if _is_a(dataset, "DatasetDict") or _is_a(dataset, "IterableDatasetDict"):
        names = ", ".join(map(repr, dataset)) or "none"
        if split is None or split not in dataset:
            found = "is missing" if split is None else f"is {split!r}"
            raise PlanError(f"`split` {found}, but the splits of `dataset` are {names}. Pass one.")
        return dataset[split]
    if not (_is_a(dataset, "Dataset") or _is_a(dataset, "IterableDataset")):
        raise PlanTypeError(
            "`dataset` must be a Hugging Face dataset (`datasets.Dataset`, `IterableDataset`, or a "
            f"dict of them), got {type(dataset).__name__}."
        )
    if split is not None:
        own = "" if dataset.split is None else f" of the split {str(dataset.split)!r}"
        raise PlanError(
            f"`split` is {split!r}, but `dataset` is a single dataset{own}. Leave `split` out."
        )
    return dataset


def _is_a(dataset: HfDataset, name: str) -> bool:
    return isinstance(dataset, getattr(sys.modules["datasets"], name))
