"""Converts datasets that TFDS has prepared on this machine to gristmill datasets."""

import hashlib
import os
from types import ModuleType
from typing import Any, TypeAlias

from gristmill._api.adapters.tfds.decode import LazyFeatures, RecordDecoder
from gristmill._api.adapters.tfds.layout import Feature, make_layout
from gristmill._api.adapters.tfds.records import FileSlice, SplitRecords
from gristmill._api.adapters.tfds.source import TfdsSource
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._base.extras import load_extra
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element

Builder: TypeAlias = Any
"""A `tfds.core.DatasetBuilder`. TFDS is optional, so its types cannot be imported here."""

Split: TypeAlias = Any
"""A split as TFDS takes it, such as a string or a `tfds.core.ReadInstruction`."""

_FILE_FORMATS = ("array_record", "tfrecord")
_MAX_SPLIT_CHARS = 80
"""A split whose `repr` is longer is described by a digest of it."""


def from_tfds(
    builder_or_name: Builder | str,
    *,
    split: Split,
    data_dir: str | os.PathLike[str] | None = None,
    as_supervised: bool = False,
) -> MapDataset[Element]:
    """Convert a split of a dataset that TFDS has prepared to a gristmill dataset.

    Records have the order and the values of `builder.as_data_source(split)`, with numbers in NumPy
    types. Records of plain features (numbers, strings, labels, PNG images of one shape) are decoded
    in blocks, without TFDS. Others are decoded by TFDS itself, mostly without TensorFlow. Nothing
    is downloaded. If the decoded records take at most 256 MB, each process that reads them caches
    them in memory.

        builder = tfds.builder("mnist", file_format="array_record")
        builder.download_and_prepare()
        dataset = gristmill.from_tfds(builder, split="train", as_supervised=True)
        for images, labels in dataset.seed(0).shuffle().batch(128): ...

    Args:
        builder_or_name: A TFDS builder, or the name of a dataset that TFDS knows or finds in
            `data_dir`. Its files are in ArrayRecord or TFRecord format. TFRecord files are indexed
            when they are first read.
        split: A split as TFDS takes it: `"train"`, `"train[:10%]"`, `"train+test"`, a
            `ReadInstruction`, or a part that `tfds.even_splits` returns.
        data_dir: The folder where TFDS looks for a dataset that is passed by name.
        as_supervised: Whether records are tuples of the dataset's input and target, rather than
            dicts of all features.

    Returns:
        A `MapDataset` of the records, in the order of the files.

    Raises:
        PlanTypeError: If `builder_or_name` is neither a builder nor a string.
        PlanError: If the dataset or split does not exist, is not prepared, or has another file
            format, or if `as_supervised` is true and the dataset has no supervised keys.
    """
    tfds = load_extra("tensorflow_datasets", extra="tfds", wanted_by="`from_tfds`")
    builder = _get_builder(tfds, builder_or_name, data_dir)
    info = builder.info
    _check_prepared(builder)
    slices = _get_file_slices(builder, split)
    file_format = _get_file_format(builder)
    keys = info.supervised_keys
    if as_supervised and keys is None:
        raise PlanError(
            f"`as_supervised` is true, but {info.full_name} does not define its input and target. "
            f"Leave it out, and take the values you need from {_join_names(info.features)}."
        )
    layout = make_layout(tfds, info.features, keys if as_supervised else None)
    arguments = f"{info.full_name!r}, split={_describe_split(split)}"
    source = TfdsSource(
        SplitRecords(slices, file_format),
        RecordDecoder(layout, LazyFeatures(info.features)),
        f"TfdsSource({arguments}{', as_supervised=True' if as_supervised else ''})",
    )
    return MapDataset.source(source)


def _get_builder(
    tfds: ModuleType, builder_or_name: object, data_dir: str | os.PathLike[str] | None
) -> Builder:
    if isinstance(builder_or_name, tfds.core.DatasetBuilder):
        if data_dir is not None:
            raise PlanError(
                "`data_dir` is for a dataset that is passed by name: a builder has its own. Leave "
                "it out."
            )
        return builder_or_name
    if not isinstance(builder_or_name, str):
        raise _make_type_error(builder_or_name)
    try:
        return tfds.builder(builder_or_name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        where = "" if data_dir is None else f", and there is none in {os.fspath(data_dir)}"
        raise PlanError(
            f"TFDS knows no dataset named {builder_or_name!r}{where}. Check the name and "
            "`data_dir`, or pass a builder."
        ) from None


def _make_type_error(value: object) -> PlanTypeError:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "tensorflow":
        remedy = (
            "The records of a `tf.data.Dataset` cannot be read by index: pass the builder that "
            "made it, or the name of the dataset."
        )
    elif package == "tensorflow_datasets":
        remedy = (
            "A TFDS data source can be passed to `MapDataset.source` and `DataLoader` directly; "
            "here pass the builder."
        )
    else:
        remedy = "Use `tfds.builder(name)` or `tfds.builder_from_directory(folder)`."
    return PlanTypeError(
        "`builder_or_name` must be a TFDS builder or the name of a dataset, got "
        f"{kind.__name__}. {remedy}"
    )


def _check_prepared(builder: Builder) -> None:
    # TFDS may know the splits of a dataset that is not prepared. `is_prepared` is not used, as it
    # requires the folder to be named after a version.
    if not builder.info.splits or not builder.data_path.exists():
        raise PlanError(
            f"{builder.info.full_name} is not prepared in {os.fspath(builder.data_path)}, and "
            "`from_tfds` downloads nothing. Call "
            '`builder.download_and_prepare(file_format="array_record")` first, or pass the '
            "`data_dir` that contains it."
        )


def _get_file_slices(builder: Builder, split: Split) -> list[FileSlice]:
    splits = builder.info.splits
    try:
        instructions = splits[split].file_instructions
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        names = ", ".join(repr(str(name)) for name in splits)
        reason = str(error).splitlines()[0].rstrip(".") if isinstance(error, ValueError) else ""
        raise PlanError(
            f"`split` must be one that TFDS knows, such as 'train' or 'train[:10%]', got {split!r}"
            f"{': ' if reason else ''}{reason}. {builder.info.full_name} has {names}."
        ) from None
    return [
        FileSlice(one.filename, one.skip, one.take, one.examples_in_shard) for one in instructions
    ]


def _get_file_format(builder: Builder) -> str:
    file_format = builder.info.file_format
    name = "tfrecord" if file_format is None else str(file_format.value)
    if name not in _FILE_FORMATS:
        raise PlanError(
            f"The files of {builder.info.full_name} are in the format {name!r}, but only "
            '"array_record" and "tfrecord" can be read. Prepare it again with '
            '`builder.download_and_prepare(file_format="array_record")`.'
        )
    return name


def _join_names(features: Feature) -> str:
    try:
        return ", ".join(repr(name) for name in sorted(features))
    except TypeError:  # not a dict of features
        return "its records"


def _describe_split(split: Split) -> str:
    """Return a short description of a split. It goes into checkpoints, so it must not change."""
    description = repr(str(split)) if isinstance(split, str) else repr(split)
    if len(description) <= _MAX_SPLIT_CHARS:
        return description
    digest = hashlib.sha1(description.encode(), usedforsecurity=False).hexdigest()
    return f"<{digest[:12]}>"
