import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from gristmill.errors import ChangedFileError, FormatError, MissingFileError
from gristmill.sources._image_folder import ImageFolderSource


def fill(folder: Path, *names: str) -> Path:
    """Make files that hold their own names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def records_of(source: ImageFolderSource) -> list[tuple[str, int]]:
    records = [source[index] for index in range(len(source))]
    assert all(list(record) == ["image", "label"] for record in records)
    assert all(type(record["label"]) is int for record in records)
    return [(record["image"].decode(), record["label"]) for record in records]


def as_torchvision(folder: Path) -> list[tuple[str, int]]:
    """Walk a folder in the order that torchvision documents: classes, folders, names."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [
        (os.path.relpath(os.path.join(home, name), folder), label)
        for label, top in enumerate(classes)
        for home, _, names in sorted(os.walk(folder / top))
        for name in sorted(names)
    ]


NAMES = [
    "dog/2.png",
    "dog/10.jpg",
    "cat/b/1.png",
    "cat/z.PNG",
    "cat/b/a/2.webp",
    "cat/b-a/3.bmp",
    "cat/a.JPEG",
    "Zebra/x.tiff",
    "a b/é.ppm",
]


def test_a_label_is_the_number_of_a_folder(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    assert source.classes == ("Zebra", "a b", "cat", "dog")
    assert len(source) == len(NAMES)
    assert records_of(source) == as_torchvision(tmp_path)


def test_only_images_are_records(tmp_path: Path):
    fill(tmp_path, "cat/1.png", "cat/notes.txt", "cat/png", "cat/1.png.part", "top.png")
    fill(tmp_path, "cat/._1.png", "cat/.cache/2.png", ".git/3.png")
    source = ImageFolderSource(tmp_path)
    assert (source.classes, records_of(source)) == (("cat",), [("cat/1.png", 0)])


def test_many_images_at_once_are_those_read_one_by_one(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    some = [3, 0, 8, 3, 1]
    expected = [source[index] for index in some]
    assert source.__getitems__(some) == expected
    assert source.__getitems__(np.array(some)) == expected
    assert source.__getitems__(range(2, 8, 3)) == [source[2], source[5]]
    assert source.__getitems__([]) == []


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_out_of_bounds_is_refused(tmp_path: Path, index: int):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    message = rf"^`index` must be in \[0, 9\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    with pytest.raises(IndexError, match=message):
        source.__getitems__([0, index])


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "Path"])
def test_the_folder_may_be_written_in_several_ways(tmp_path: Path, form: str):
    fill(tmp_path, "cat/1.png")
    folder: Any = tmp_path if form == "Path" else form.format(tmp_path)
    source = ImageFolderSource(folder)
    assert records_of(source) == [("cat/1.png", 0)]
    assert repr(source) == f"ImageFolderSource({tmp_path.name!r}, <1 images>, <1 classes>)"


@pytest.mark.parametrize("folder", [".", "./", "train", "./train", "../{}/train", "~/train"])
def test_the_folder_may_be_written_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
):
    fill(tmp_path / "train", "train/1.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "train" if folder in (".", "./") else tmp_path)
    source = ImageFolderSource(folder.format(tmp_path.name))
    assert (source.classes, records_of(source)) == (("train",), [("train/1.png", 0)])


def test_it_can_be_pickled(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    sent = pickle.loads(pickle.dumps(source))
    assert (sent.classes, records_of(sent)) == (source.classes, records_of(source))


def test_images_in_a_store_are_read_alike(tmp_path: Path):
    fill(tmp_path, *NAMES)
    store = fsspec.filesystem("memory")
    for name in NAMES:
        store.pipe_file(f"/test_image_folder/train/{name}", name.encode())
    for address in ("memory://test_image_folder/train", "memory:///test_image_folder/train/"):
        source = ImageFolderSource(address)
        assert records_of(source) == as_torchvision(tmp_path)
        assert source.__getitems__([4, 0, 4]) == [source[4], source[0], source[4]]
        assert repr(source) == "ImageFolderSource('train', <9 images>, <4 classes>)"


def test_an_image_that_changed_is_told(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, "cat/1.png"))
    (tmp_path / "cat/1.png").write_bytes(b"another")
    with pytest.raises(ChangedFileError):
        source[0]


def test_a_missing_folder_is_told_at_once(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ImageFolderSource(tmp_path / "absent")


@pytest.mark.parametrize("names", [[], ["1.png"], [".git/1.png"]], ids=str)
def test_a_folder_without_folders_is_refused(tmp_path: Path, names: list[str]):
    message = (
        r"^There is no folder in it that could be a class\. Lay images out as "
        r"FOLDER/CLASS/IMAGE\.png\. \("
    )
    with pytest.raises(FormatError, match=message):
        ImageFolderSource(fill(tmp_path, *names))


def test_classes_without_images_are_named(tmp_path: Path):
    fill(tmp_path, "cat/1.png", "dog/notes.txt")
    (tmp_path / "empty").mkdir()
    message = (
        r"^There are classes without an image: 'dog', 'empty'\. Put images in these folders, which "
        r"end in \.bmp, \.jpeg, .*, or remove them\. \("
    )
    with pytest.raises(FormatError, match=message):
        ImageFolderSource(tmp_path)


def test_of_many_classes_without_images_some_are_named(tmp_path: Path):
    fill(tmp_path, *(f"{number}/notes.txt" for number in range(8)))
    with pytest.raises(FormatError, match=r"image: '0', '1', '2', '3', '4', \.\.\.\. Put images"):
        ImageFolderSource(tmp_path)
