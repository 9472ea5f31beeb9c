import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from gristmill._data.sources.records.image_folder import ImageFolderSource
from gristmill.errors import ChangedFileError, FormatError, MissingFileError


def fill(folder: Path, *names: str) -> Path:
    """Write files that contain their own names."""
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


def in_order_of_torchvision(folder: Path) -> list[tuple[str, int]]:
    """List images in the order that torchvision documents: by class, folder, name."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [
        (os.path.relpath(os.path.join(parent, name), folder), label)
        for label, outermost in enumerate(classes)
        for parent, _, names in sorted(os.walk(folder / outermost))
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
    assert records_of(source) == in_order_of_torchvision(tmp_path)


def test_only_images_are_records(tmp_path: Path):
    fill(tmp_path, "cat/1.png", "cat/notes.txt", "cat/png", "cat/1.png.part", "top.png")
    fill(tmp_path, "cat/._1.png", "cat/.cache/2.png", ".git/3.png")
    source = ImageFolderSource(tmp_path)
    assert (source.classes, records_of(source)) == (("cat",), [("cat/1.png", 0)])


def test_reading_many_images_equals_reading_them_one_by_one(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    indices = [3, 0, 8, 3, 1]
    expected = [source[index] for index in indices]
    assert source.__getitems__(indices) == expected
    assert source.__getitems__(np.array(indices)) == expected
    assert source.__getitems__(range(2, 8, 3)) == [source[2], source[5]]
    assert source.__getitems__([]) == []


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_out_of_bounds_is_an_error(tmp_path: Path, index: int):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    message = rf"^`index` must be in \[0, 9\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    with pytest.raises(IndexError, match=message):
        source.__getitems__([0, index])


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "Path"])
def test_the_folder_may_be_a_string_a_url_or_a_path(tmp_path: Path, form: str):
    fill(tmp_path, "cat/1.png")
    folder: Any = tmp_path if form == "Path" else form.format(tmp_path)
    source = ImageFolderSource(folder)
    assert records_of(source) == [("cat/1.png", 0)]
    assert repr(source) == f"ImageFolderSource({tmp_path.name!r}, <1 images>, <1 classes>)"


@pytest.mark.parametrize("folder", [".", "./", "train", "./train", "../{}/train", "~/train"])
def test_the_folder_may_be_relative_to_the_working_or_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
):
    fill(tmp_path / "train", "train/1.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "train" if folder in (".", "./") else tmp_path)
    source = ImageFolderSource(folder.format(tmp_path.name))
    assert (source.classes, records_of(source)) == (("train",), [("train/1.png", 0)])


def test_it_can_be_pickled(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, *NAMES))
    copy = pickle.loads(pickle.dumps(source))
    assert (copy.classes, records_of(copy)) == (source.classes, records_of(source))


def test_images_in_a_store_are_read(tmp_path: Path):
    fill(tmp_path, *NAMES)
    store = fsspec.filesystem("memory")
    for name in NAMES:
        store.pipe_file(f"/test_image_folder/train/{name}", name.encode())
    for url in ("memory://test_image_folder/train", "memory:///test_image_folder/train/"):
        source = ImageFolderSource(url)
        assert records_of(source) == in_order_of_torchvision(tmp_path)
        assert source.__getitems__([4, 0, 4]) == [source[4], source[0], source[4]]
        assert repr(source) == "ImageFolderSource('train', <9 images>, <4 classes>)"


def test_an_image_that_has_changed_is_an_error(tmp_path: Path):
    source = ImageFolderSource(fill(tmp_path, "cat/1.png"))
    (tmp_path / "cat/1.png").write_bytes(b"another")
    with pytest.raises(ChangedFileError):
        source[0]


def test_a_missing_folder_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ImageFolderSource(tmp_path / "absent")


@pytest.mark.parametrize("names", [[], ["1.png"], [".git/1.png"]], ids=str)
def test_a_folder_without_folders_is_an_error(tmp_path: Path, names: list[str]):
    message = (
        r"^The folder contains no folders, one for each class\. Arrange images as "
        r"FOLDER/CLASS/IMAGE\.png\. \("
    )
    with pytest.raises(FormatError, match=message):
        ImageFolderSource(fill(tmp_path, *names))


def test_classes_without_images_are_an_error(tmp_path: Path):
    fill(tmp_path, "cat/1.png", "dog/notes.txt")
    (tmp_path / "empty").mkdir()
    message = (
        r"^Some classes have no images: 'dog', 'empty'\. Add images to these folders, with one of "
        r"the extensions \.bmp, \.jpeg, .*, or remove the folders\. \("
    )
    with pytest.raises(FormatError, match=message):
        ImageFolderSource(tmp_path)


def test_the_error_lists_at_most_five_classes_without_images(tmp_path: Path):
    fill(tmp_path, *(f"{number}/notes.txt" for number in range(8)))
    with pytest.raises(FormatError, match=r"images: '0', '1', '2', '3', '4', \.\.\.\. Add images"):
        ImageFolderSource(tmp_path)
