import pytest

from gristmill._io.file import FileRef
from gristmill.options import StorageOptions


@pytest.mark.parametrize(
    ("path", "is_local", "name"),
    [
        ("data/a.bin", True, "a.bin"),
        ("data/what?.bin", True, "what?.bin"),
        ("C:\\data\\a.bin", True, "a.bin"),
        ("s3://bucket/data/a.bin", False, "a.bin"),
        ("https://host/a.bin?signature=secret/key", False, "a.bin"),
        ("https://host/folder/?signature=secret", False, "folder"),
    ],
)
def test_the_name_of_a_file_is_without_its_folder_and_its_query(
    path: str, is_local: bool, name: str
):
    ref = FileRef(path=path, size=1, version="", is_local=is_local, storage=StorageOptions())

    assert ref.name == name
