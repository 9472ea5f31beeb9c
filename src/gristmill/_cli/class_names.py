"""Find the names of the classes that the labels of a dataset are numbers of."""

import json
import os
from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from gristmill._io.file import FileRef
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill.errors import GristmillError

LABEL = "label"
"""The column of labels in folders of images, and in what `gristmill convert` makes of them."""

_MAX_BYTES = 2**24


@runtime_checkable
class SupportsClasses(Protocol):
    """A source whose labels are numbers of classes with names."""

    @property
    def classes(self) -> Sequence[str]: ...


def find_class_names(source: object, refs: Sequence[FileRef]) -> dict[str, Sequence[str]]:
    """Return the names of the classes of each column that has them.

    They are those of the source, of a `classes.json` that `gristmill convert` wrote beside the
    files, or of a `dataset_info.json` that Hugging Face's `save_to_disk` wrote there.
    """
    if isinstance(source, SupportsClasses):
        return {LABEL: source.classes}
    if not refs or not refs[0].is_local:  # a store may take long to answer that there is no file
        return {}
    folder = os.path.dirname(refs[0].path)
    found: dict[str, Sequence[str]] = {}
    info = _read_json(f"{folder}/dataset_info.json")
    if isinstance(info, dict):
        features = cast("dict[str, object]", info).get("features")
        if isinstance(features, dict):
            for column, feature in cast("dict[str, object]", features).items():
                if isinstance(feature, dict):
                    found |= _checked(column, cast("dict[str, object]", feature).get("names"))
    return found | _checked(LABEL, _read_json(f"{folder}/classes.json"))


def label_with_name(label: object, *, names: Sequence[str]) -> str:
    """Return a label, followed by the name of its class if it has one.

    >>> label_with_name(1, names=["cat", "dog"]), label_with_name(7, names=["cat", "dog"])
    ("1 ('dog')", '7')
    """
    if isinstance(label, int) and 0 <= label < len(names):
        return f"{label} ({names[label]!r})"
    return str(label)


def _checked(column: str, names: object) -> dict[str, Sequence[str]]:
    """Return names by column; nothing for anything but a list of strings."""
    if not isinstance(names, list):
        return {}
    listed = cast("list[object]", names)
    strings = [name for name in listed if isinstance(name, str)]
    return {column: strings} if strings and len(strings) == len(listed) else {}


def _read_json(path: str) -> object:
    """Return the content of a JSON file, or `None` if there is none."""
    try:
        ref = find_file(path)
        if ref.size > _MAX_BYTES:
            return None
        return json.loads(OpenFiles([ref])[0].read_one(0, ref.size))
    except (GristmillError, OSError, ValueError, RecursionError):
        return None  # the names are a help only
