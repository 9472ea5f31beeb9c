"""What goes wrong in a worker is reported as if it had gone wrong here."""

import io
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, IndexSampler, SkipErrors, WorkerOptions
from gristmill.errors import PlanError, PlanTypeError, UnsendableError, WorkerError
from tests.faults.scripts import Script

MakeLoader = Callable[..., DataLoader]
Run = Callable[..., Script]
pytestmark = pytest.mark.usefixtures("nothing_left")


def run_to_error(loader: DataLoader) -> tuple[list[Any], BaseException]:
    """Return the elements up to an error, and that."""
    seen: list[Any] = []
    with iter(loader) as iterator:
        try:
            seen.extend(iterator)
        except BaseException as error:
            return seen, error
    raise AssertionError("it did not fail")


def described(error: BaseException) -> str:
    """Return all that a reader of its traceback sees, but for our own frames."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def test_an_exception_keeps_its_type_message_and_line(make_loader: MakeLoader):

    def fail(element: int) -> int:
        if element == 30:
            raise KeyError("no such thing")
        return element

    seen, error = run_to_error(make_loader(range(60), fail))

    assert seen == list(range(30))
    assert type(error) is KeyError
    assert error.args == ("no such thing",)
    assert f'"{__file__}", line {fail.__code__.co_firstlineno + 2}, in fail' in described(error)
    assert 'raise KeyError("no such thing")' in described(error)
    assert "on record 30 of the source" in described(error)
    assert re.search(r"Traceback in worker [01]:", described(error))


def test_an_exception_class_of_the_script_is_the_same_class(make_loader: MakeLoader):

    class MineError(Exception):
        def __init__(self, what: str, where: int) -> None:
            super().__init__(f"{what} at {where}")
            self.what, self.where = what, where

    def fail(element: int) -> int:
        raise MineError("trouble", element)

    _, error = run_to_error(make_loader(range(5), fail))

    assert type(error) is MineError
    assert (str(error), error.what, error.where) == ("trouble at 0", "trouble", 0)


def test_an_exception_that_cannot_be_pickled_still_reports_what_it_is(make_loader: MakeLoader):

    class MineError(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.lock = threading.Lock()

    def fail(element: int) -> int:
        raise MineError("with a lock")

    _, error = run_to_error(make_loader(range(5), fail))

    assert "with a lock" in described(error)
    assert "MineError" in repr(error)
    assert "could not be sent" in described(error).lower()


def test_the_cause_of_an_exception_is_shown(make_loader: MakeLoader):

    def fail(element: int) -> int:
        try:
            return 1 // (element * 0)
        except ZeroDivisionError as error:
            raise LookupError("looked up") from error

    _, error = run_to_error(make_loader(range(5), fail))

    assert type(error) is LookupError
    assert "ZeroDivisionError" in described(error)
    assert "return 1 // (element * 0)" in described(error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_an_exception_of_a_special_kind_ends_no_worker_and_no_stream(
    make_loader: MakeLoader, kind: type[BaseException], capfd: pytest.CaptureFixture[str]
):
    def fail(element: int) -> int:
        if element == 7:
            raise kind("special")
        return element

    seen, error = run_to_error(make_loader(range(20), fail))
    _, inline = run_to_error(make_loader(range(20), fail, worker_count=0))

    assert seen == list(range(len(seen)))
    assert type(error) is type(inline)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("worker_count", [0, 2])
def test_an_exit_in_a_step_is_an_error_that_names_step_and_record(
    make_loader: MakeLoader, worker_count: int
):
    def leave(element: int) -> int:
        if element == 7:
            sys.exit(0)
        return element

    _, error = run_to_error(make_loader(range(20), leave, worker_count=worker_count))

    assert type(error) is WorkerError
    assert "`sys.exit(0)` was called" in str(error)
    assert "leave" in str(error)
    assert "record 7 of the source" in str(error)


def test_the_stream_goes_on_after_an_exception_that_was_caught(
    make_loader: MakeLoader, tmp_path: Path
):
    fixed = tmp_path / "fixed"

    def fail(element: int) -> int:
        if element == 30 and not fixed.exists():
            raise ValueError("not yet")
        return element

    seen: list[int] = []
    with iter(make_loader(range(60), fail)) as iterator:
        with pytest.raises(ValueError, match="not yet"):
            seen.extend(iterator)
        fixed.touch()
        seen.extend(iterator)

    assert seen == list(range(60))


def test_an_error_from_the_source_names_the_record(make_loader: MakeLoader):

    class Source:
        def __len__(self) -> int:
            return 50

        def __getitem__(self, index: int) -> int:
            if index == 33:
                raise OSError(5, "Input/output error", "disk")
            return index

    seen, error = run_to_error(make_loader(Source(), Batch(5)))

    assert np.concatenate(seen).tolist() == list(range(30))
    assert type(error) is OSError
    assert (error.errno, error.filename) == (5, "disk")
    assert "record 33 of the source" in described(error)


@pytest.mark.parametrize(
    ("unsendable", "kind"),
    [
        (lambda: {"x": [1, threading.Lock()]}, "_thread.lock"),
        (lambda: {"x": [1, (n for n in range(3))]}, "generator"),
        (lambda: {"x": [1, open("/dev/null")]}, "open file"),  # noqa: SIM115 - that is the point
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_element_that_cannot_be_sent_is_named_after_those_before_it(
    make_loader: MakeLoader, unsendable: Callable[[], Any], kind: str
):
    def step(element: int) -> Any:
        return unsendable() if element == 12 else {"x": element}

    seen, error = run_to_error(make_loader(range(30), step))

    assert seen == [{"x": n} for n in range(12)]
    assert type(error) is UnsendableError
    assert f'`element["x"][1]` is a{"n" if kind[0] == "o" else ""} {kind}' in str(error)
    assert "record 12 of the source" in described(error)


def test_a_batch_that_cannot_be_sent_is_named(make_loader: MakeLoader):

    def step(batch: np.ndarray) -> Any:
        return {"rows": batch, "how": (n for n in batch)} if batch[0] == 20 else {"rows": batch}

    seen, error = run_to_error(make_loader(range(60), Batch(5), step))

    assert [batch["rows"][0] for batch in seen] == [0, 5, 10, 15]
    assert '`element["how"]` is a generator' in str(error)


def test_an_element_that_cannot_be_loaded_here_yields_an_error(make_loader: MakeLoader):

    class Trap:
        def __init__(self, n: int) -> None:
            self.n = n

        def __setstate__(self, state: Any) -> None:
            raise ValueError("not here")

    def step(element: int) -> Any:
        return Trap(element) if element == 12 else element

    seen, error = run_to_error(make_loader(range(30), step))

    assert type(error) is ValueError
    assert seen == list(range(len(seen)))
    assert "not here" in described(error)


def test_a_transform_that_cannot_be_pickled_names_itself_and_what_in_it(make_loader: MakeLoader):
    lock = threading.Lock()

    def guarded(element: int) -> int:
        with lock:
            return element

    with iter(make_loader(range(5), guarded)) as iterator:
        with pytest.raises(PlanTypeError, match=r"`lock` is a _thread\.lock") as caught:
            next(iterator)
        assert "guarded" in str(caught.value)
        assert "worker_count=0" in str(caught.value)


def test_a_transform_with_an_open_file_names_it(make_loader: MakeLoader, tmp_path: Path):

    class Reads:
        def __init__(self, file: io.TextIOWrapper) -> None:
            self.file = file

        def __call__(self, element: int) -> int:
            return element

    with (tmp_path / "file").open("w") as file, iter(make_loader([1], Reads(file))) as iterator:
        with pytest.raises(PlanTypeError, match="is an open file") as caught:
            next(iterator)
        assert ".file`" in str(caught.value)


def test_an_init_fn_that_cannot_be_pickled_is_named(make_loader: MakeLoader):
    lock = threading.Lock()

    def begin(number: int, count: int) -> None:
        lock.acquire()

    loader = make_loader(range(5), worker_options=WorkerOptions(worker_init_fn=begin))
    with iter(loader) as iterator, pytest.raises(PlanTypeError, match=r"worker_init_fn.*`lock`"):
        next(iterator)


def test_a_module_that_is_missing_in_the_worker_is_named(script: Run, tmp_path: Path):
    (tmp_path / "plugin.py").write_text("def step(n):\n    return n\n")
    done = script(
        """
        import os
        import plugin
        os.remove("plugin.py")
        from gristmill import load

        list(load(range(3), num_epochs=1, transformations=[plugin.step], worker_count=2))
        """
    ).finish()

    assert done.code == 1
    assert "ModuleNotFoundError: No module named 'plugin'" in done.err
    assert done.err.count("Traceback (most recent call last)") == 1


def test_an_import_inside_a_transform_that_fails_names_the_module(make_loader: MakeLoader):

    def step(element: int) -> int:
        import no_such_module  # noqa: PLC0415 # pyright: ignore[reportMissingImports]

        return no_such_module.answer

    _, error = run_to_error(make_loader(range(5), step))

    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "no_such_module"


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, float("nan"), [2]])
def test_a_worker_count_that_is_no_count_is_refused_when_the_loader_is_built(count: Any):
    with pytest.raises(PlanError, match="`worker_count` must be"):
        DataLoader(data_source=range(3), sampler=IndexSampler(3, num_epochs=1), worker_count=count)


def test_skipped_records_are_the_same_with_and_without_workers(
    make_loader: MakeLoader, caplog: pytest.LogCaptureFixture
):
    def step(element: int) -> int:
        if element % 17 == 5:
            raise ValueError(f"bad {element}")
        return element

    def run(worker_count: int) -> tuple[list[Any], list[Any], bytes]:
        loader = make_loader(
            range(100), step, Batch(6), worker_count=worker_count, on_error=SkipErrors(10)
        )
        with iter(loader) as iterator:
            batches = [batch.tolist() for batch in iterator]
            return batches, iterator.skipped, iterator.get_state()

    assert run(2) == run(0)


def test_a_record_that_kills_its_worker_is_not_skipped(make_loader: MakeLoader):

    def step(element: int) -> int:
        import os  # noqa: PLC0415 - by value

        if element == 9:
            os._exit(1)
        return element

    loader = make_loader(range(20), step, on_error=SkipErrors(5))
    seen, error = run_to_error(loader)

    assert seen == list(range(9))
    assert isinstance(error, WorkerError)


@pytest.fixture
def all_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Yield the warnings of a test."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def test_log_lines_arrive_with_the_number_of_the_worker(
    make_loader: MakeLoader, caplog: pytest.LogCaptureFixture
):
    def step(element: int) -> int:
        logging.getLogger("my.step").info("at %s", element, extra={"element": element})
        logging.getLogger("my.step").debug("not wanted")
        return element

    with caplog.at_level(logging.INFO, "my.step"):
        list(make_loader(range(20), step))

    records = [record for record in caplog.records if record.name == "my.step"]
    lines = {record.getMessage().partition("] ")[2] for record in records}
    assert lines == {f"at {n}" for n in range(20)}
    assert {record.getMessage().partition("]")[0] for record in records} <= {
        "[worker 0",
        "[worker 1",
    }
    assert {record.levelname for record in records} == {"INFO"}
    assert all(Path(record.pathname) == Path(__file__) for record in records)


def test_log_lines_of_the_start_of_a_worker_arrive(
    make_loader: MakeLoader, caplog: pytest.LogCaptureFixture
):
    def begin(number: int, count: int) -> None:
        logging.getLogger("my.start").warning("hello from %s of %s", number, count)

    options = WorkerOptions(worker_init_fn=begin)
    with iter(make_loader(range(500), lambda x: x, worker_options=options)) as iterator:
        list(iterator)

    assert "[worker 0] hello from 0 of 2" in [record.getMessage() for record in caplog.records]


def test_warnings_arrive_with_the_number_of_the_worker(
    make_loader: MakeLoader, all_warnings: list[warnings.WarningMessage]
):
    def step(element: int) -> int:
        if element == 5:
            warnings.warn("five is odd", DeprecationWarning, stacklevel=1)
        return element

    list(make_loader(range(20), step))

    # An idle worker may take over what another is about to begin: then both report.
    warning, *again = [each for each in all_warnings if "five is odd" in str(each.message)]
    assert len(again) <= 1
    assert re.fullmatch(r"\[worker [01]\] five is odd", str(warning.message))
    assert warning.category is DeprecationWarning
    assert (warning.filename, warning.lineno) == (__file__, step.__code__.co_firstlineno + 2)


def test_a_warning_that_is_an_error_here_is_one_in_a_worker(make_loader: MakeLoader):

    def step(element: int) -> int:
        if element == 5:
            warnings.warn("five is odd", UserWarning, stacklevel=1)
        return element

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen, error = run_to_error(make_loader(range(20), step))

    assert seen == list(range(5))
    assert type(error) is UserWarning


def test_a_clean_run_prints_nothing(script: Run):
    done = script(
        """
        import numpy as np
        from gristmill import Batch, DataLoader, IndexSampler

        loader = DataLoader(
            data_source=range(500),
            sampler=IndexSampler(500, num_epochs=2, shuffle=True, seed=0),
            operations=[lambda n: np.full(1000, n), Batch(8)],
            worker_count=2,
        )
        for batch in loader:
            pass
        for batch in loader:
            break
        """,
        "-X",
        "dev",
        "-W",
        "error",
    ).finish()

    assert (done.out, done.err, done.code) == ("", "", 0)
