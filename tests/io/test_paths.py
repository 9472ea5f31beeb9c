import pickle
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file, find_files, find_folder
from gristmill.errors import (
    FormatError,
    MissingExtraError,
    MissingFileError,
    PlanError,
    PlanTypeError,
    StoreError,
)
from gristmill.options import StorageOptions
from tests.io.conftest import Serve

Put = Callable[[Mapping[str, bytes]], str]

FILES = {
    "b.bin": b"bb",
    "a.bin": b"a",
    "c.txt": b"ccc",
    "deep/d.bin": b"dddd",
    "deep/er/e.bin": b"eeeee",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def names_of(refs: Any, root: object) -> list[str]:
    return [ref.path.removeprefix(f"{root}".rstrip("/") + "/") for ref in refs]


@pytest.mark.parametrize("kind", [str, Path, lambda path: f"file://{path}"])
def test_one_path_is_one_file(folder: Path, kind: Callable[[Path], Any]):
    (ref,) = find_files(kind(folder / "c.txt"))
    assert ref == find_file(kind(folder / "c.txt"))
    assert (ref.path, ref.size, ref.is_local) == (str(folder / "c.txt"), 3, True)


@pytest.mark.parametrize("many", [list, tuple])
def test_many_paths_keep_their_order_and_repeats(folder: Path, many: Callable[..., Any]):
    given = [folder / "c.txt", str(folder / "a.bin"), folder / "b.bin", folder / "a.bin"]
    assert names_of(find_files(many(given)), folder) == ["c.txt", "a.bin", "b.bin", "a.bin"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.bin", ["a.bin", "b.bin"]),
        ("[bc].*", ["b.bin", "c.txt"]),
        ("?.bin", ["a.bin", "b.bin"]),
        ("*/*.bin", ["deep/d.bin"]),
        ("**/*.bin", ["a.bin", "b.bin", "deep/d.bin", "deep/er/e.bin"]),
        ("*", ["a.bin", "b.bin", "c.txt"]),
    ],
)
def test_a_pattern_is_the_files_that_match_sorted(folder: Path, pattern: str, names: list[str]):
    assert names_of(find_files(folder / pattern), folder) == names


def test_patterns_among_many_paths_keep_their_order(folder: Path):
    found = find_files([folder / "c.txt", folder / "?.bin", folder / "deep" / "d.bin"])
    assert names_of(found, folder) == ["c.txt", "a.bin", "b.bin", "deep/d.bin"]


@pytest.mark.parametrize("name", ["a[1].bin", "a*.bin", "a?.bin", "[x]"])
def test_an_existing_name_that_looks_like_a_pattern_is_a_name(tmp_path: Path, name: str):
    (tmp_path / "a1.bin").touch()
    (tmp_path / name).write_bytes(b"this one")
    assert names_of(find_files(tmp_path / name), tmp_path) == [name]


def test_a_path_may_start_in_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder))
    assert find_file("~/c.txt").size == 3


def test_a_symbolic_link_is_followed(folder: Path):
    (folder / "link").symlink_to(folder / "c.txt")
    assert find_file(folder / "link").size == 3
    (folder / "broken").symlink_to(folder / "nothing")
    with pytest.raises(MissingFileError, match="There is no such file"):
        find_file(folder / "broken")


def test_a_folder_is_all_files_below_it_sorted(folder: Path):
    found = find_folder(folder)
    assert names_of(found, folder) == sorted(FILES)
    assert [ref.size for ref in found] == [len(FILES[name]) for name in sorted(FILES)]


def test_refs_can_be_pickled(folder: Path):
    options = StorageOptions(num_retries=3)
    refs = find_files(folder / "*", options)
    assert pickle.loads(pickle.dumps(refs)) == refs
    assert refs[0].storage == options


# Missing files.


def test_the_error_for_a_missing_file_suggests_a_similar_name(folder: Path):
    with pytest.raises(MissingFileError, match=r"^There is no such file\. Did you mean 'c\.txt'\?"):
        find_file(folder / "cc.txt")
    with pytest.raises(MissingFileError, match=r"^There is no such file\. Check the path\."):
        find_file(folder / "quite-another")


def test_the_error_for_a_missing_file_names_the_missing_folder(folder: Path):
    with pytest.raises(MissingFileError, match="There is no folder 'far' either"):
        find_file(folder / "far" / "c.txt")


def test_a_file_below_a_file_is_missing(folder: Path):
    with pytest.raises(MissingFileError):
        find_file(folder / "c.txt" / "d")


def test_one_missing_file_among_many_is_named(folder: Path):
    with pytest.raises(MissingFileError) as e:
        find_files([folder / "a.bin", folder / "x.bin", folder / "b.bin"])
    assert e.value.path == str(folder / "x.bin")


def test_a_pattern_that_matches_nothing_is_an_error(folder: Path):
    with pytest.raises(MissingFileError, match=r"The pattern matches no file\.") as e:
        find_files([folder / "a.bin", folder / "*.parquet"])
    assert e.value.path == str(folder / "*.parquet")


def test_a_pattern_that_only_matches_folders_is_an_error(folder: Path):
    with pytest.raises(MissingFileError, match=r"The pattern matches no file, only 1 folder\."):
        find_files(folder / "dee*")


def test_a_folder_in_place_of_files_is_an_error(folder: Path):
    with pytest.raises(
        FormatError, match=r"The path is a folder\. Pass the files in it.*`/\*`"
    ) as e:
        find_files(folder / "deep")
    assert e.value.path == str(folder / "deep")


def test_a_missing_folder_is_an_error(folder: Path):
    with pytest.raises(MissingFileError, match="There is no such folder"):
        find_folder(folder / "far")
    with pytest.raises(MissingFileError, match="There is no such folder"):
        find_folder(folder / "c.txt")


def test_an_empty_list_is_refused():
    with pytest.raises(PlanError, match=r"^`paths` must hold at least one path, got an empty list"):
        find_files([])


@pytest.mark.parametrize("paths", [b"a.bin", 3, None, {"a": "b"}, {"a.bin"}])
def test_a_value_that_is_not_a_path_is_refused(paths: Any):
    message = f"`paths` must be a path or a list of paths, got {re.escape(repr(paths))}"
    with pytest.raises(PlanTypeError, match=message):
        find_files(paths)


@pytest.mark.parametrize("item", [b"a.bin", 3, None, "", ["a.bin"]])
def test_a_list_item_that_is_not_a_path_is_refused(folder: Path, item: Any):
    with pytest.raises(
        PlanTypeError, match=f"must be a string or a `Path`, got {re.escape(repr(item))}"
    ):
        find_files([folder / "a.bin", item])


def test_a_pattern_in_place_of_one_file_must_match_one_file(folder: Path):
    assert find_file(folder / "*.txt").size == 3
    with pytest.raises(PlanError, match=r"`path` must be one file, and '.*' matches 2\."):
        find_file(folder / "*.bin")


# Remote files.


@pytest.mark.parametrize("kind", ["s3", "memory"])
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.bin", ["a.bin", "b.bin"]),
        ("*/*.bin", ["deep/d.bin"]),
        ("**/*.bin", ["a.bin", "b.bin", "deep/d.bin", "deep/er/e.bin"]),
        ("*", ["a.bin", "b.bin", "c.txt"]),
    ],
)
def test_a_remote_pattern_is_the_files_that_match_sorted(
    request: pytest.FixtureRequest, kind: str, pattern: str, names: list[str]
):
    root, storage = put(request, kind)
    found = find_files(root + pattern, storage)
    assert names_of(found, root) == names
    assert [ref.size for ref in found] == [len(FILES[name]) for name in names]
    assert not any(ref.is_local for ref in found)
    assert [file.read_one(0, 1) for file in map(OpenFiles(found).__getitem__, range(len(names)))]


@pytest.mark.parametrize("kind", ["s3", "memory"])
def test_a_remote_folder_is_all_files_below_it_sorted(request: pytest.FixtureRequest, kind: str):
    root, storage = put(request, kind)
    assert names_of(find_folder(root + "deep", storage), root) == ["deep/d.bin", "deep/er/e.bin"]
    found = find_folder(root, storage)
    assert names_of(found, root) == sorted(FILES)
    for ref in found:
        assert OpenFiles([ref])[0].read_one(0, ref.size) == FILES[names_of([ref], root)[0]]


@pytest.mark.parametrize("kind", ["s3", "memory"])
def test_a_remote_pattern_that_matches_nothing_is_an_error(
    request: pytest.FixtureRequest, kind: str
):
    root, storage = put(request, kind)
    with pytest.raises(MissingFileError, match=r"The pattern matches no file\.") as e:
        find_files(root + "*.parquet", storage)
    assert e.value.path == root + "*.parquet"


@pytest.mark.parametrize("kind", ["s3", "memory"])
def test_a_remote_folder_in_place_of_files_is_an_error(request: pytest.FixtureRequest, kind: str):
    root, storage = put(request, kind)
    with pytest.raises((FormatError, MissingFileError), match="folder") as e:
        find_files(root + "deep", storage)
    assert e.value.path == root + "deep"


@pytest.mark.parametrize("kind", ["s3", "memory"])
def test_a_missing_remote_folder_is_an_error(request: pytest.FixtureRequest, kind: str):
    root, storage = put(request, kind)
    with pytest.raises(MissingFileError, match="There is no such folder"):
        find_folder(root + "far", storage)


def test_a_missing_bucket_is_an_error(serve_s3: Serve):
    store = serve_s3({})
    for find in (find_file, find_files, find_folder):
        with pytest.raises(MissingFileError):
            find("s3://no-such-bucket/a.bin", store.storage())
    with pytest.raises(MissingFileError):
        find_files("s3://no-such-bucket/*.bin", store.storage())


def test_new_files_in_a_store_are_found(serve_s3: Serve):
    store = serve_s3({"a.bin": b"a"})
    find_file(store.url("a.bin"), store.storage())  # fsspec may cache listings from here on
    assert len(find_files(store.url("*.bin"), store.storage())) == 1
    store.put("b.bin", b"b")
    store.put("a.bin", b"longer")
    assert [ref.size for ref in find_files(store.url("*.bin"), store.storage())] == [6, 1]
    assert [ref.size for ref in find_folder(store.url(""), store.storage())] == [6, 1]


def test_a_pattern_and_an_address_find_the_same_file(request: pytest.FixtureRequest):
    for kind in ("s3", "memory"):
        root, storage = put(request, kind)
        assert find_files(root + "c*", storage)[0] == find_file(root + "c.txt", storage)
        in_folder = {ref.path: ref for ref in find_folder(root, storage)}
        assert in_folder[root + "c.txt"] == find_file(root + "c.txt", storage)


def test_a_pattern_takes_few_requests_however_many_files_match(serve_s3: Serve):
    store = serve_s3({f"{number:03}.bin": b"x" for number in range(30)})
    found = find_files(store.url("*.bin"), store.storage())
    assert len(found) == 30
    assert len(store.requests) <= 4


def test_local_and_remote_files_may_be_mixed(folder: Path, put_in_memory: Put):
    root = put_in_memory(FILES)
    found = find_files([folder / "a.bin", root + "b.bin"])
    assert [ref.is_local for ref in found] == [True, False]
    files = OpenFiles(found)
    assert [files[0].read_one(0, 1), files[1].read_one(0, 2)] == [b"a", b"bb"]


def test_an_unknown_protocol_is_an_error():
    with pytest.raises(StoreError, match=r"fsspec cannot open this store: .*nowhere"):
        find_file("nowhere://a.bin")


def test_unknown_options_of_a_store_are_an_error():
    storage = StorageOptions(filesystem={"no_such_option": 3})
    with pytest.raises(StoreError, match=r"no_such_option"):
        find_file("s3://bucket/a.bin", storage)


def test_the_error_for_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    message = (
        r"'memory://here/a.bin'.* needs the package 'fsspec'.*`pip install .gristmill\[fsspec\].`"
    )
    with pytest.raises(MissingExtraError, match=message):
        find_file("memory://here/a.bin", StorageOptions(num_parallel=7))


def put(request: pytest.FixtureRequest, kind: str) -> tuple[str, StorageOptions]:
    """Put the files into a store; return its address and options."""
    if kind == "memory":
        return request.getfixturevalue("put_in_memory")(FILES), StorageOptions()
    store = request.getfixturevalue(f"serve_{kind}")(FILES)
    return store.root, store.storage()
