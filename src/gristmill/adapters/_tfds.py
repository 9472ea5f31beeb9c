"""Datasets that TFDS has prepared on this machine."""

import hashlib
import os
from typing import Any, cast

from gristmill._extras import load_extra
from gristmill.adapters._tfds_decode import Decoder, Features
from gristmill.adapters._tfds_layout import describe
from gristmill.adapters._tfds_records import Part, SplitRecords
from gristmill.adapters._tfds_source import TfdsSource
from gristmill.dataset import MapDataset
from gristmill.errors import PlanError, PlanTypeError

_FORMATS = ("array_record", "tfrecord")
_LONGEST_SPLIT = 80
"""Characters of a split that are told; of a longer one a digest is."""


def from_tfds(
    builder_or_name: Any,
    *,
    split: Any,
    data_dir: str | os.PathLike[str] | None = None,
    as_supervised: bool = False,
) -> MapDataset[Any]:
    """Give a split of a dataset that TFDS has prepared as one of ours.

    Records come in the order of the files, as from `builder.as_data_source(split)`, and are what
    that gives, numbers in the types of NumPy. Those of plain features (numbers, texts, labels, PNG
    pictures of one shape) are decoded by the block, without TFDS; all others by TFDS itself, which
    needs no TensorFlow for most. Nothing is downloaded. Decoded records of up to 256 MB are kept in
    memory by each process that reads them.

        builder = tfds.builder("mnist", file_format="array_record")
        builder.download_and_prepare()
        dataset = gristmill.from_tfds(builder, split="train", as_supervised=True)
        for images, labels in dataset.seed(0).shuffle().batch(128): ...

    Args:
        builder_or_name: A builder, or the name of a dataset that TFDS knows or finds in `data_dir`.
            Its files are in ArrayRecord's format or in TFRecord's, which are indexed when first
            read.
        split: As TFDS takes it: `"train"`, `"train[:10%]"`, `"train+test"`, a `ReadInstruction`,
            one of `tfds.even_splits`.
        data_dir: Where TFDS looks for a dataset that is given by its name.
        as_supervised: Whether to give tuples of what the dataset names as input and target, rather
            than dicts of everything.
    """
    tfds = load_extra("tensorflow_datasets", extra="tfds", wanted_by="`from_tfds`")
    builder = _as_builder(tfds, builder_or_name, data_dir)
    info = builder.info
    _check_prepared(builder)
    parts = _parts(builder, split)
    file_format = _format_of(builder)
    keys = info.supervised_keys
    if as_supervised and keys is None:
        raise PlanError(
            f"`as_supervised` is true, and {info.full_name} does not say what is input and what is "
            f"target. Leave it out, and take what you need from {_told_names(info.features)}."
        )
    layout = describe(tfds, info.features, keys if as_supervised else None)
    told = f"TfdsSource({info.full_name!r}, split={_tell_split(split)}"
    source = TfdsSource(
        SplitRecords(parts, file_format),
        Decoder(layout, Features(info.features)),
        told + (", as_supervised=True)" if as_supervised else ")"),
    )
    return MapDataset.source(source)


def _as_builder(tfds: Any, given: Any, data_dir: str | os.PathLike[str] | None) -> Any:
    if isinstance(given, tfds.core.DatasetBuilder):
        if data_dir is not None:
            raise PlanError(
                "`data_dir` is for a dataset that is given by its name: a builder has its own. "
                "Leave it out."
            )
        return given
    if not isinstance(given, str):
        raise _not_a_builder(given)
    try:
        return tfds.builder(given, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        where = "" if data_dir is None else f", nor is it in {os.fspath(data_dir)}"
        raise PlanError(
            f"TFDS knows no dataset named {given!r}{where}. Check the name and `data_dir`, or pass "
            "a builder."
        ) from None


def _not_a_builder(given: Any) -> PlanTypeError:
    kind = cast("type[Any]", type(given))
    home = kind.__module__.partition(".")[0]
    if home == "tensorflow":
        remedy = (
            "A `tf.data.Dataset` has no records to be read at any index: pass the builder that "
            "made it, or the name of the dataset."
        )
    elif home == "tensorflow_datasets":
        remedy = (
            "A data source of TFDS is taken as it is by `MapDataset.source` and `DataLoader`; "
            "here pass the builder."
        )
    else:
        remedy = "Use `tfds.builder(name)` or `tfds.builder_from_directory(folder)`."
    return PlanTypeError(
        "`builder_or_name` must be a builder of TFDS or the name of a dataset, got "
        f"{kind.__name__}. {remedy}"
    )


def _check_prepared(builder: Any) -> None:
    # Of a dataset that is not, TFDS may know the splits by hearsay. `is_prepared` would want the
    # folder to be named after a version.
    if not builder.info.splits or not builder.data_path.exists():
        raise PlanError(
            f"{builder.info.full_name} is not prepared in {os.fspath(builder.data_path)}, and "
            "`from_tfds` downloads nothing. Call "
            '`builder.download_and_prepare(file_format="array_record")` first, or pass the '
            "`data_dir` it is in."
        )


def _parts(builder: Any, split: Any) -> list[Part]:
    splits = builder.info.splits
    try:
        instructions = splits[split].file_instructions
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        there = ", ".join(repr(str(name)) for name in splits)
        fact = str(error).splitlines()[0].rstrip(".") if isinstance(error, ValueError) else ""
        raise PlanError(
            f"`split` must be one that TFDS knows, such as 'train' or 'train[:10%]', got {split!r}"
            f"{': ' if fact else ''}{fact}. {builder.info.full_name} has {there}."
        ) from None
    return [Part(one.filename, one.skip, one.take, one.examples_in_shard) for one in instructions]


def _format_of(builder: Any) -> str:
    file_format = builder.info.file_format
    found = "tfrecord" if file_format is None else str(file_format.value)
    if found not in _FORMATS:
        raise PlanError(
            f"The files of {builder.info.full_name} are in the format {found!r}, and those in "
            '"array_record" and "tfrecord" can be read here. Prepare it anew with '
            '`builder.download_and_prepare(file_format="array_record")`.'
        )
    return found


def _told_names(features: Any) -> str:
    try:
        return ", ".join(repr(name) for name in sorted(features))
    except TypeError:  # not a dict of features
        return "its records"


def _tell_split(split: Any) -> str:
    """Name a split in a few words, the same in each run: it goes into checkpoints."""
    told = repr(str(split)) if isinstance(split, str) else repr(split)
    if len(told) <= _LONGEST_SPLIT:
        return told
    return f"<{hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()[:12]}>"
