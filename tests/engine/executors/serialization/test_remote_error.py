"""An exception of a worker arrives as what it was; what cannot arrive is reported."""

import errno
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill._base.trees.tree import map_leaves
from gristmill._engine.executors.serialization.remote_error import dump_error, load_error
from gristmill.errors import BatchError, CorruptFileError, WorkerError

InWorker = Callable[..., Any]


def _raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def _there(in_worker: InWorker, error: BaseException) -> BaseException:
    """Raise an exception in a worker and return what arrives."""

    def fail(error: BaseException) -> None:
        raise error

    return _raised(lambda: in_worker(fail, error))


def _back(error: BaseException) -> BaseException:
    return load_error(dump_error(error, where="Traceback in worker 1"))


BUILTIN: list[BaseException] = [
    ValueError("no"),
    KeyError("x"),
    KeyError(("a", 1)),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    FileNotFoundError(errno.ENOENT, "No such file", "/data/x"),
    OSError(errno.EIO, "input/output error"),
    ImportError("no module", name="x", path="/y"),
    StopIteration(3),
    SystemExit(4),
    KeyboardInterrupt(),
    SyntaxError("bad", ("x.py", 1, 2, "text", 1, 3)),
    AssertionError(),
    MemoryError(),
]


@pytest.mark.parametrize("error", BUILTIN, ids=lambda error: type(error).__name__)
def test_a_built_in_exception_arrives_as_it_was(error: BaseException, in_worker: InWorker):
    back = _there(in_worker, error)

    assert (type(back), back.args, str(back)) == (type(error), error.args, str(error))
    for name in ("errno", "filename", "name", "path", "value", "code", "start", "lineno"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_the_notes_and_attributes_come_along(in_worker: InWorker):
    error = ValueError("no")
    error.add_note("In Map decode, added at train.py:3, on record 7.")
    vars(error)["record"] = {"id": 7}

    back = _there(in_worker, error)

    assert back.__notes__[0] == "In Map decode, added at train.py:3, on record 7."
    assert vars(back)["record"] == {"id": 7}


def test_the_notes_come_along_though_a_class_pickles_itself_without_them():
    error = CorruptFileError("It cannot be decoded.", path="cat.jpg", record=120)
    error.add_note("In Map DecodeImage, added at train.py:3, on record 120.")

    back: Any = load_error(dump_error(error, where="Traceback in worker 1"))

    assert isinstance(back, CorruptFileError)
    assert back.__notes__ == ["In Map DecodeImage, added at train.py:3, on record 120."]


def test_an_exception_of_ours_keeps_its_fields(in_worker: InWorker):
    back = _there(in_worker, BatchError("does not fit", row=3))

    assert isinstance(back, BatchError)
    assert (str(back), back.row) == ("does not fit", 3)


def test_a_class_of_the_script_with_two_arguments_arrives_as_itself(in_worker: InWorker):
    class BadRecordError(Exception):
        def __init__(self, path: str, reason: str) -> None:
            super().__init__(f"{path}: {reason}")
            self.path = path

    def decode() -> None:
        raise BadRecordError("a.jpg", "truncated")

    back = _raised(lambda: in_worker(decode))

    assert type(back) is BadRecordError
    assert (str(back), back.args) == ("a.jpg: truncated", ("a.jpg: truncated",))
    assert back.path == "a.jpg"


def test_an_os_error_of_the_script_keeps_its_number_and_file(in_worker: InWorker):
    class UnreadableError(OSError):
        def __init__(self, number: int, path: str, *, hint: str) -> None:
            super().__init__(number, "cannot read", path)
            self.hint = hint

    def read() -> None:
        raise UnreadableError(5, "/data/x", hint="mount it")

    back = _raised(lambda: in_worker(read))

    assert type(back) is UnreadableError
    assert (back.errno, back.filename, back.hint) == (5, "/data/x", "mount it")
    assert str(back) == "[Errno 5] cannot read: '/data/x'"


def test_a_unicode_error_of_the_script_keeps_its_places(in_worker: InWorker):
    class BadTextError(UnicodeDecodeError):
        def __init__(self, data: bytes) -> None:
            super().__init__("utf-8", data, 1, 2, "bad")

    def read() -> None:
        raise BadTextError(b"a\xff")

    back = _raised(lambda: in_worker(read))

    assert type(back) is BadTextError
    assert (back.object, back.start, str(back)) == (b"a\xff", 1, str(BadTextError(b"a\xff")))


def test_an_init_that_changes_the_message_is_not_called_again(in_worker: InWorker):
    class ShoutingError(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message + "!")

    def fail() -> None:
        raise ShoutingError("no")

    assert str(_raised(lambda: in_worker(fail))) == "no!"


def test_a_group_arrives_with_its_members_and_their_notes(in_worker: InWorker):
    class TwoError(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a + b)
            self.a = a

    def fail() -> None:
        members: list[Exception] = []
        for error in (TwoError(1, 2), KeyError("x")):
            error.add_note(f"note on {type(error).__name__}")
            members.append(error)
        raise ExceptionGroup("several", [*members, ExceptionGroup("inner", [OSError(2, "b")])])

    back = _raised(lambda: in_worker(fail))

    assert type(back) is ExceptionGroup
    assert str(back) == "several (3 sub-exceptions)"
    assert [type(member) for member in back.exceptions] == [TwoError, KeyError, ExceptionGroup]
    assert vars(back.exceptions[0])["a"] == 1
    assert back.exceptions[1].__notes__ == ["note on KeyError"]


def test_a_group_with_a_base_exception_stays_one(in_worker: InWorker):
    back = _there(in_worker, BaseExceptionGroup("all", [SystemExit(1)]))

    assert type(back) is BaseExceptionGroup


# What cannot be sent


def test_an_attribute_that_cannot_be_sent_comes_as_text(in_worker: InWorker):
    class FailedError(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.lock = threading.Lock()
            self.record = 7

    def fail() -> None:
        raise FailedError("no")

    back = _raised(lambda: in_worker(fail))

    assert type(back) is FailedError
    assert (str(back), back.record) == ("no", 7)
    assert isinstance(back.lock, str)
    assert "_thread.lock" in back.lock
    assert back.__notes__[0] == "Could not be sent, so replaced by `repr`: `lock`."


def test_an_argument_that_cannot_be_sent_comes_as_text(in_worker: InWorker):
    def fail() -> None:
        raise ValueError("no", (n for n in ""))

    back = _raised(lambda: in_worker(fail))

    assert type(back) is ValueError
    assert back.args[0] == "no"
    assert back.args[1].startswith("<generator object")
    assert back.__notes__[0].startswith("Could not be sent, so replaced by `repr`: argument 1.")


def test_a_message_that_would_change_is_reported_in_a_note():
    class Odd:
        def __str__(self) -> str:
            return "the message"

        def __reduce__(self) -> Any:
            raise TypeError("no")

    back = _back(ValueError(Odd()))

    assert type(back) is ValueError
    assert "The message was: the message" in back.__notes__[0]


def test_a_class_that_cannot_be_sent_has_a_stand_in_that_reports_that(in_worker: InWorker):
    def fail() -> None:
        local_error = type("LocalError", (ValueError,), {"lock": threading.Lock()})
        error = local_error("truncated")
        error.add_note("In Map decode, on record 7.")
        raise error

    back = _raised(lambda: in_worker(fail))
    notes = back.__notes__

    assert type(back) is WorkerError
    assert str(back).endswith("LocalError: truncated")
    assert notes[0] == "In Map decode, on record 7."
    assert notes[1].startswith("A substitute for the ")
    assert "cannot pickle '_thread.lock' object" in notes[1]
    assert "in fail" in notes[2]


def test_a_class_that_only_the_worker_can_import_has_a_stand_in(
    tmp_path: Path, in_worker: InWorker
):
    (tmp_path / "only_there.py").write_text("class Odd(Exception): pass\n")

    def fail(folder: str) -> None:
        sys.path.insert(0, folder)
        try:
            module = __import__("only_there")
        finally:
            sys.path.remove(folder)
        raise module.Odd("no")

    back = _raised(lambda: in_worker(fail, str(tmp_path)))

    assert type(back) is WorkerError
    assert str(back) == "only_there.Odd: no"
    assert "No module named 'only_there'" in back.__notes__[0]


@pytest.mark.parametrize(
    "method", ["__str__", "__repr__", "__reduce__", "__reduce_ex__", "__init__"]
)
def test_a_broken_method_breaks_nothing(method: str, in_worker: InWorker):
    class BrokenError(Exception):
        pass

    def fail() -> None:
        def broken(*_: Any) -> Any:
            raise RuntimeError("broken")

        error = BrokenError("no")
        setattr(BrokenError, method, broken)
        raise error

    back = _raised(lambda: in_worker(fail))

    assert type(back) is BrokenError
    assert back.args == ("no",)


def test_a_broken_repr_of_an_attribute_breaks_nothing():
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("broken")

        def __reduce__(self) -> Any:
            raise RuntimeError("broken")

    error = ValueError("no")
    vars(error)["it"] = Broken()

    assert vars(_back(error))["it"] == "<Broken>"


def test_odd_notes_break_nothing():
    error = ValueError("no")
    vars(error)["__notes__"] = 5

    assert str(_back(error)) == "no"


# The traceback


def test_the_note_shows_the_users_frames(tmp_path: Path, in_worker: InWorker):
    script = tmp_path / "steps.py"
    script.write_text("def inner(x):\n    return 1 / x\n\n\ndef decode(x):\n    return inner(x)\n")

    def run(path: Path) -> None:
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        names["decode"](0)

    note = _raised(lambda: in_worker(run, script)).__notes__[-1]

    assert note.startswith("Traceback in worker 1:\n")
    assert note.endswith(
        f'  File "{script}", line 6, in decode\n'
        "    return inner(x)\n"
        "           ^^^^^^^^\n"
        f'  File "{script}", line 2, in inner\n'
        "    return 1 / x\n"
        "           ~~^~~"
    )


def test_our_own_frames_on_top_are_left_out():
    def decode(_: int) -> None:
        raise ValueError("no")

    error = _raised(lambda: map_leaves(decode, [1]))
    while (
        error.__traceback__
        and "_base/trees/tree.py" not in error.__traceback__.tb_frame.f_code.co_filename
    ):
        error.__traceback__ = error.__traceback__.tb_next  # as if it were caught by ours

    note = _back(error).__notes__[-1]

    assert re.fullmatch(
        r'Traceback in worker 1:\n  File ".*test_remote_error.py", line \d+, in decode\n'
        r'    raise ValueError\("no"\)',
        note,
    )


def test_an_error_of_ours_without_users_frames_has_no_traceback():
    error = BatchError("does not fit")

    assert not hasattr(_back(error), "__notes__")


def test_the_cause_is_shown_as_text(in_worker: InWorker):
    def decode() -> None:
        try:
            {}["x"]
        except KeyError as error:
            raise ValueError("no such field") from error

    back = _raised(lambda: in_worker(decode))

    assert back.__cause__ is None
    assert "\nCaused by KeyError: 'x'\n  File " in back.__notes__[-1]


def test_what_was_being_handled_is_shown_as_text(in_worker: InWorker):
    def decode(is_hidden: bool) -> None:
        try:
            {}["x"]
        except KeyError:
            if is_hidden:
                raise ValueError("no such field") from None
            int("no number")

    shown = _raised(lambda: in_worker(decode, False)).__notes__[-1]
    hidden = _raised(lambda: in_worker(decode, True)).__notes__[-1]

    assert "\nWhile handling KeyError: 'x'\n  File " in shown
    assert "While handling" not in hidden


def test_a_chain_that_bites_its_tail_ends():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert _back(first).__notes__[0].count("Caused by") == 1


def test_endless_recursion_yields_a_readable_note(in_worker: InWorker):
    def ping(n: int) -> int:
        return pong(n + 1)

    def pong(n: int) -> int:
        return ping(n + 1)

    back = _raised(lambda: in_worker(ping, 0))

    assert isinstance(back, RecursionError)
    assert "more ...\n" in back.__notes__[-1]
    assert len(back.__notes__[-1].splitlines()) < 250


SCRIPT = '''
import subprocess, sys, traceback
from gristmill._engine.executors.serialization.remote_error import load_error
from gristmill._engine.executors.serialization.serialize import dump_plan

class BadRecordError(Exception):
    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")

def decode(path):
    raise BadRecordError(path, "truncated")

CHILD = """
import sys
from gristmill._engine.executors.serialization.remote_error import dump_error
from gristmill._engine.executors.serialization.serialize import load
try:
    load(sys.stdin.buffer.read())("a.jpg")
except Exception as error:
    sys.stdout.buffer.write(dump_error(error, where="Traceback in worker 1"))
"""
done = subprocess.run([sys.executable, "-c", CHILD], input=dump_plan(decode), capture_output=True)
sys.stderr.write(done.stderr.decode())
try:
    raise load_error(done.stdout)
except BadRecordError:
    print(traceback.format_exc(), end="")
'''


def test_one_readable_traceback_for_an_exception_class_of_a_script(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )

    line = SCRIPT[: SCRIPT.index("    raise BadRecordError")].count("\n") + 1
    outer = SCRIPT[: SCRIPT.index("    raise load_error")].count("\n") + 1
    assert done.stderr == ""
    assert done.stdout == (
        "Traceback (most recent call last):\n"
        f'  File "{script}", line {outer}, in <module>\n'
        "    raise load_error(done.stdout)\n"
        "BadRecordError: a.jpg: truncated\n"
        "Traceback in worker 1:\n"
        '  File "<string>", line 6, in <module>\n'
        f'  File "{script}", line {line}, in decode\n'
        '    raise BadRecordError(path, "truncated")\n'
    )
