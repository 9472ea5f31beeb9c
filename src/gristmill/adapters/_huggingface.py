"""Datasets of Hugging Face as ours."""

import sys
from typing import Any

from gristmill._extras import load_extra
from gristmill._site import call_site
from gristmill.adapters._hf_formats import check_format, plan_readings
from gristmill.adapters._hf_source import DatasetSource
from gristmill.adapters._hf_stream import stream_of
from gristmill.adapters._hf_transform import TransformedSource
from gristmill.adapters._hf_values import load_pillow
from gristmill.dataset import IterDataset, MapDataset, PlannedIterDataset
from gristmill.errors import PlanError, PlanTypeError
from gristmill.plan import RecordStreamNode

_ME = "`from_huggingface`"


def from_huggingface(
    dataset: Any, *, split: str | None = None
) -> MapDataset[dict[str, Any]] | IterDataset[dict[str, Any]]:
    """Give a dataset of Hugging Face as one of ours; its elements are dicts.

    A `Dataset` is read from its Arrow tables, many rows at once, and in the order that `shuffle`,
    `select`, `sort` and the like gave it. Numbers are NumPy's, of the type that is stored: a list
    of numbers is an array, and one of a fixed shape (`Array2D`, ...) an array of that shape.
    Pictures (`Image`) are decoded into arrays. Texts and bytes are Python's, and a null is None.

    A format of the dataset holds: with `with_format("numpy")` an element is what `dataset[i]`
    gives, dtypes included, but for scalars, which are never arrays without axes, and texts, which
    keep the NULs at their end. With "torch", "jax" and "tensorflow" it is the same values as NumPy
    arrays, for devices are fed by us. A transform (`set_transform`) is given blocks of rows, of
    any size; it must treat each row by itself.

    A streaming `IterableDataset` gives an `IterDataset` that is resumed by the dataset's own
    state; where it shuffles in a buffer, which that state does not hold, by going through the
    rows before. Shuffle it with a seed, and then a resumed run goes on exactly where it was.

    >>> import datasets
    >>> rows = datasets.Dataset.from_dict({"x": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]})
    >>> ds = from_huggingface(rows.select([2, 0, 1]))
    >>> ds[0]
    {'x': array([5, 6]), 'label': np.int64(0)}
    >>> [batch["label"].tolist() for batch in ds.batch(2)]
    [[0, 0], [1]]

    Args:
        dataset: A `Dataset` or `IterableDataset`, or a dict of them by split.
        split: Which one of the dict.
    """
    chosen = _choose(dataset, split)
    if _is_a(chosen, "IterableDataset"):
        node = RecordStreamNode(site=call_site(), parents=(), stream=stream_of(chosen))
        return PlannedIterDataset(node, ())
    kind = chosen.format["type"]
    check_format(kind)
    if kind == "custom":
        return MapDataset.source(TransformedSource(chosen))
    readings = plan_readings(chosen)
    if any(reading.how == "pictures" for reading in readings):
        load_pillow()  # here rather than in a worker
    return MapDataset.source(DatasetSource(chosen, readings))


def _choose(dataset: Any, split: str | None) -> Any:
    """Give the dataset that is meant, or say what to pass instead."""
    if isinstance(dataset, str):
        raise PlanTypeError(
            f"`dataset` is the text {dataset!r}. Pass the dataset itself, as in "
            f"`from_huggingface(datasets.load_dataset({dataset!r}, split='train'))`."
        )
    load_extra("datasets", extra="huggingface", wanted_by=_ME)
    if _is_a(dataset, "DatasetBuilder"):
        raise PlanTypeError(
            "`dataset` is a builder. Pass what it builds: call `builder.download_and_prepare()`, "
            "and pass `builder.as_dataset(split='train')`."
        )
    if _is_a(dataset, "DatasetDict") or _is_a(dataset, "IterableDatasetDict"):
        names = ", ".join(map(repr, dataset)) or "none"
        if split is None or split not in dataset:
            given = "is not given" if split is None else f"is {split!r}"
            raise PlanError(f"`split` {given}, and the splits of `dataset` are {names}. Name one.")
        return dataset[split]
    if not (_is_a(dataset, "Dataset") or _is_a(dataset, "IterableDataset")):
        raise PlanTypeError(
            "`dataset` must be a dataset of Hugging Face (`datasets.Dataset`, `IterableDataset`, "
            f"or a dict of them), got {type(dataset).__name__}."
        )
    if split is not None:
        own = "" if dataset.split is None else f", that of the split {str(dataset.split)!r}"
        raise PlanError(
            f"`split` is {split!r}, and `dataset` is a single dataset{own}. Leave `split` out."
        )
    return dataset


def _is_a(dataset: Any, name: str) -> bool:
    return isinstance(dataset, getattr(sys.modules["datasets"], name))
