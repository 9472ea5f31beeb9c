"""A source over images in folders, one folder per class."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import SupportsIndex, final

import numpy as np

from gristmill._base.indices import check_index, check_indices
from gristmill._data.sources.record_location import RecordLocation
from gristmill._io.file import FileRef
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_folder
from gristmill.errors import FormatError
from gristmill.options import StorageOptions
from gristmill.types import Element, Span

_EXTENSIONS = frozenset([".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])


@final
class ImageFolderSource:
    """Random access to images in folders, one folder per class, as torchvision expects them.

    The classes are the folders in `folder`, sorted by name, and a label is the number of a class.
    Images in nested folders belong to the class of the outermost one. A record is a dict with the
    bytes of the file as `image`, which `DecodeImage` decodes, and the `label`. Hidden files, and
    files whose extension is not one of an image, are left out.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ["cat", "dog"]:
    ...         pathlib.Path(folder, name).mkdir()
    ...         _ = pathlib.Path(folder, name, "1.png").write_bytes(b"PNG of a " + name.encode())
    ...     source = ImageFolderSource(folder)
    ...     len(source), source.classes, source[1]
    (2, ('cat', 'dog'), {'image': b'PNG of a dog', 'label': 1})

    Args:
        folder: A path, or a URL such as `s3://bucket/train`.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such folder.
        PlanTypeError: If an argument has the wrong type.
        FormatError: If the folder holds no images.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        refs = find_folder(folder, storage)
        root = _normalize(os.fspath(folder))
        files = sorted((_split(ref.path, root), number) for number, ref in enumerate(refs))
        is_local = all(ref.is_local for ref in refs)
        names = _list_folders(root) if is_local else {components[0] for components, _ in files}
        self._classes = tuple(sorted(name for name in names if name and not _is_hidden(name)))
        labels = {name: label for label, name in enumerate(self._classes)}
        images = [
            (labels[components[0]], refs[number])
            for components, number in files
            if components[0] in labels and _is_image(*components[1:])
        ]
        _check_classes(self._classes, {label for label, _ in images}, os.fspath(folder))
        self._name = root.rpartition("/")[2]
        self._labels = np.array([label for label, _ in images], dtype=np.int64)
        # A million refs would take seconds to pickle, so they are created again when needed.
        self._paths = [ref.path for _, ref in images]
        self._sizes = np.array([ref.size for _, ref in images], dtype=np.int64)
        self._versions = [ref.version for _, ref in images]
        self._is_local = is_local
        self._storage = images[0][1].storage

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        return self._classes

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Element]:
        return self.__getitems__([check_index(index, len(self))])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Element]]:
        numbers = np.asarray(indices, dtype=np.int64)
        check_indices(numbers, len(self))
        refs = [self._ref(index) for index in numbers.tolist()]
        labels: list[int] = self._labels[numbers].tolist()
        return [
            {"image": image, "label": label}
            for image, label in zip(self._read(refs), labels, strict=True)
        ]

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        return RecordLocation(self._ref(check_index(index, len(self))).address, 0, 0)

    def __repr__(self) -> str:  # part of checkpoints: without the path, as data may move
        return (
            f"ImageFolderSource({self._name!r}, <{len(self)} images>, "
            f"<{len(self._classes)} classes>)"
        )

    def _ref(self, index: int) -> FileRef:
        return FileRef(
            path=self._paths[index],
            size=int(self._sizes[index]),
            version=self._versions[index],
            is_local=self._is_local,
            storage=self._storage,
        )

    def _read(self, refs: list[FileRef]) -> list[bytes]:
        if self._is_local or len(refs) < 2:
            return [_read_all(ref) for ref in refs]
        with ThreadPoolExecutor(min(len(refs), self._storage.num_parallel)) as pool:
            return list(pool.map(_read_all, refs))


def _read_all(ref: FileRef) -> bytes:
    return OpenFiles([ref])[0].read_one(0, ref.size)


def _normalize(path: str) -> str:
    """Return a path or URL without scheme and trailing slash, as the paths of files contain it."""
    is_remote = "://" in path and not path.startswith("file://")
    local = path if is_remote else os.path.expanduser(path.removeprefix("file://"))
    return local.partition("://")[2].strip("/") if is_remote else local.rstrip("/")


def _split(path: str, root: str) -> tuple[str, str, str]:
    """Return the class of a file ("" for none), the nested folders, and the name.

    >>> _split("s3://bucket/train/cat/small/1.png", "bucket/train")
    ('cat', 'small', '1.png')
    """
    within = path[path.index(root) + len(root) :].strip("/")
    folders, _, name = within.rpartition("/")
    outermost, _, nested = folders.partition("/")
    return outermost, nested, name


def _list_folders(root: str) -> set[str]:
    """Return the names of the local folders, including those without files."""
    with os.scandir(root or "/") as entries:
        return {entry.name for entry in entries if entry.is_dir()}


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_image(nested: str, name: str) -> bool:
    is_hidden = any(map(_is_hidden, [*nested.split("/"), name]))
    return not is_hidden and os.path.splitext(name)[1].lower() in _EXTENSIONS


def _check_classes(classes: Sequence[str], labels: set[int], folder: str) -> None:
    """Raise unless there are classes, and each of them has an image.

    Args:
        classes: The names of the classes.
        labels: The labels of all images.
        folder: The folder, for the error.
    """
    if not classes:
        raise FormatError(
            "The folder contains no folders, one for each class. Arrange images as "
            "FOLDER/CLASS/IMAGE.png.",
            path=folder,
        )
    empty = [repr(name) for label, name in enumerate(classes) if label not in labels]
    if empty:
        listed = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        raise FormatError(
            f"Some classes have no images: {listed}. Add images to these folders, with one of the "
            f"extensions {', '.join(sorted(_EXTENSIONS))}, or remove the folders.",
            path=folder,
        )
