"""Names and values from files reach no terminal as control characters, whoever prints them."""

import contextlib
import io
import logging
import os
import pickle
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, MapDataset, SkipErrors, errors
from gristmill._base.call_site import warn_user
from gristmill._data.sources.detect import open_source
from gristmill.errors import FileError, GristmillError
from tests.cli.formats import MAKERS

EVIL = "a\x1b[2J\x1b]0;title\x07\u202e\x9b31m"


def assert_harmless(printed: str) -> None:
    found = [char for char in printed if not char.isprintable() and char not in "\n"]
    assert not found, printed


@contextlib.contextmanager
def everything_printed() -> Iterator[list[str]]:
    """Collect what is logged, warned and printed."""
    output, printed = io.StringIO(), list[str]()
    handler = logging.StreamHandler(output)
    logger = logging.getLogger("gristmill")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield printed
        printed += [str(warning.message) for warning in caught]
        printed.append(output.getvalue())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture
def evil_folder(tmp_path: Path) -> Path:
    folder = tmp_path / EVIL
    folder.mkdir()
    return folder


def fail(element: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("name", "worker_count"), [*((name, 0) for name in MAKERS), ("csv", 1), ("tar", 1)]
)
def test_a_file_in_a_folder_with_an_evil_name(evil_folder: Path, name: str, worker_count: int):
    path = MAKERS[name](evil_folder)
    with everything_printed() as printed:
        source: Any = open_source(path)
        loader = DataLoader(
            data_source=source,
            sampler=IndexSampler(len(source), num_epochs=1, seed=0),
            operations=[fail],
            worker_count=worker_count,
        )
        printed += [repr(source), str(source), repr(loader), str(MapDataset.source(source))]
        with iter(loader) as iterator:
            printed += [repr(iterator), str(iterator.get_state())]
            with pytest.raises(ValueError, match="no") as caught:
                next(iterator)
        printed += traceback.format_exception_only(caught.value)
        skipping = DataLoader(
            data_source=source,
            sampler=IndexSampler(len(source), num_epochs=1, seed=0),
            operations=[fail],
            on_error=SkipErrors(budget=10**6),
        )
        with iter(skipping) as iterator:
            assert list(iterator) == []
            printed += [str(iterator.stats()), repr(iterator.stats()), str(iterator.get_state())]
    assert_harmless("".join(printed))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("damage", ["truncated", "missing", "garbage"])
def test_the_errors_of_a_damaged_file_with_an_evil_name(evil_folder: Path, name: str, damage: str):
    path = MAKERS[name](evil_folder)
    for file in [path] if os.path.isfile(path) else sorted(Path(path).rglob("*")):
        if Path(file).is_file():
            size = os.path.getsize(file)
            if damage == "truncated":
                os.truncate(file, size // 2)
            elif damage == "missing":
                os.remove(file)
            else:
                Path(file).write_bytes(EVIL.encode() * 10)
    with everything_printed() as printed:
        try:
            source: Any = open_source(path)
            records = [source[index] for index in range(len(source))]
            assert damage != "missing", records
        except Exception as error:
            printed += traceback.format_exception_only(error)
    assert_harmless("".join(printed))


ERRORS = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, GristmillError)
]


@pytest.mark.parametrize("error_class", ERRORS)
def test_no_error_prints_control_characters(error_class: type[GristmillError]):
    error = error_class(f"The key {EVIL} is\nunknown.")

    assert_harmless(str(error))
    assert str(error).count("\n") == 1
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_path_of_a_file_error_is_as_it_is_and_printed_on_one_line():
    error = FileError("No.", path=f"{EVIL}\nx")

    assert error.path == f"{EVIL}\nx"
    assert str(error) == r"No. (a\x1b[2J\x1b]0;title\x07\u202e\x9b31m\nx)"


def test_a_name_that_is_not_utf_8_can_be_printed():
    error = FileError("No.", path=os.fsdecode(b"/data/\xff.tar"))

    assert str(error).encode() == rb"No. (/data/\udcff.tar)"


def test_warnings_escape_control_characters():
    with pytest.warns(errors.GristmillWarning) as caught:
        warn_user(f"The column {EVIL} is odd.")
    assert_harmless(str(caught[0].message))
