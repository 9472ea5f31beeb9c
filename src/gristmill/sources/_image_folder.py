"""Images in folders, one folder for each class."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, SupportsIndex, final

import numpy as np

from gristmill._places import Places
from gristmill.errors import FormatError
from gristmill.files import FileRef, OpenFiles, find_folder
from gristmill.options import StorageOptions
from gristmill.types import Span

_EXTENSIONS = frozenset([".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])


@final
class ImageFolderSource:
    """Random access to images in one folder for each class, as torchvision lays them out.

    Classes are the folders in `folder`, sorted, and a label is the number of a class. Folders
    within belong to the class they are in. Records have the bytes of the file as `image`, for
    `DecodeImage`, and its `label`. What is hidden or does not end as images do is left out.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ["cat", "dog"]:
    ...         pathlib.Path(folder, name).mkdir()
    ...         _ = pathlib.Path(folder, name, "1.png").write_bytes(b"PNG of a " + name.encode())
    ...     source = ImageFolderSource(folder)
    ...     len(source), source.classes, source[1]
    (2, ('cat', 'dog'), {'image': b'PNG of a dog', 'label': 1})

    Args:
        folder: A path, or an address such as `s3://bucket/train`.
        storage: How files that are not on this machine are read.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        refs = find_folder(folder, storage)
        root = _plain(os.fspath(folder))
        images = sorted((_parts(ref.path, root), number) for number, ref in enumerate(refs))
        is_local = all(ref.is_local for ref in refs)
        names = _folders_in(root) if is_local else {parts[0] for parts, _ in images}
        self._classes = tuple(sorted(name for name in names if name and not _is_hidden(name)))
        labels = {name: label for label, name in enumerate(self._classes)}
        kept = [
            (labels[parts[0]], refs[number])
            for parts, number in images
            if parts[0] in labels and _is_image(*parts)
        ]
        _check_classes(self._classes, {label for label, _ in kept}, os.fspath(folder))
        self._name = root.rpartition("/")[2]
        self._labels = np.array([label for label, _ in kept], dtype=np.int64)
        self._places = Places([len(kept)])
        # A million refs would take seconds to pickle: they are made again where they are used.
        self._paths = [ref.path for _, ref in kept]
        self._sizes = np.array([ref.size for _, ref in kept], dtype=np.int64)
        self._versions = [ref.version for _, ref in kept]
        self._is_local = is_local
        self._storage = kept[0][1].storage

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        return self._classes

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        return self.__getitems__([self._places.check(index)])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Any]]:
        numbers = np.asarray(indices, dtype=np.int64)
        for index in (numbers.min(), numbers.max()) if len(numbers) else ():
            self._places.check(index)
        refs = [self._ref(index) for index in numbers.tolist()]
        labels: list[int] = self._labels[numbers].tolist()
        return [
            {"image": image, "label": label}
            for image, label in zip(self._read(refs), labels, strict=True)
        ]

    def __repr__(self) -> str:  # goes into checkpoints: without the path, which may be another
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
            return [_read_whole(ref) for ref in refs]
        with ThreadPoolExecutor(min(len(refs), self._storage.num_parallel)) as pool:
            return list(pool.map(_read_whole, refs))


def _read_whole(ref: FileRef) -> bytes:
    return OpenFiles([ref])[0].read_one(0, ref.size)


def _plain(path: str) -> str:
    """Give a path or an address without what may be written in several ways around it."""
    is_remote = "://" in path and not path.startswith("file://")
    local = path if is_remote else os.path.expanduser(path.removeprefix("file://"))
    return local.partition("://")[2].strip("/") if is_remote else local.rstrip("/")


def _parts(path: str, root: str) -> tuple[str, str, str]:
    """Give the class of a file ("" for none), the folders below it, and the name.

    >>> _parts("s3://bucket/train/cat/small/1.png", "bucket/train")
    ('cat', 'small', '1.png')
    """
    within = path[path.index(root) + len(root) :].strip("/")
    folders, _, name = within.rpartition("/")
    top, _, below = folders.partition("/")
    return top, below, name


def _folders_in(root: str) -> set[str]:
    """Name the folders on this machine, those without files among them."""
    with os.scandir(root or "/") as entries:
        return {entry.name for entry in entries if entry.is_dir()}


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_image(top: str, below: str, name: str) -> bool:
    is_hidden = any(map(_is_hidden, [*below.split("/"), name]))
    return not is_hidden and os.path.splitext(name)[1].lower() in _EXTENSIONS


def _check_classes(classes: Sequence[str], found: set[int], folder: str) -> None:
    if not classes:
        raise FormatError(
            "There is no folder in it that could be a class. Lay images out as "
            "FOLDER/CLASS/IMAGE.png.",
            path=folder,
        )
    empty = [repr(name) for label, name in enumerate(classes) if label not in found]
    if empty:
        told = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        raise FormatError(
            f"There are classes without an image: {told}. Put images in these folders, which end "
            f"in {', '.join(sorted(_EXTENSIONS))}, or remove them.",
            path=folder,
        )
