"""What a worker logs and warns of is logged and warned of in the parent, with its number."""

import logging
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gristmill._engine.executors.serialization.log_relay import (
    RelayedLog,
    RelayedRecord,
    WarningFilter,
    deliver,
    relay_settings,
)

WORKER = """
import logging, pickle, sys, warnings
from gristmill._engine.executors.serialization.log_relay import apply_filters, install_relay

sent = []
settings = pickle.load(sys.stdin.buffer)
install_relay(settings, sent.append, worker=1)
{program}
sys.stdout.buffer.write(pickle.dumps(sent))
"""


def run_worker(program: str, settings: Any = None) -> list[Any]:
    """Run a program in a worker, and return what it sends; it prints nothing of its own."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER.format(program=textwrap.dedent(program))],
        input=pickle.dumps(settings or relay_settings()),
        capture_output=True,
        check=False,
    )
    assert done.stderr.decode() == ""
    return pickle.loads(done.stdout)


@pytest.fixture(autouse=True)
def _keep_logging_and_warnings() -> Iterator[None]:
    level, disabled = logging.root.level, logging.root.manager.disable
    levels = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        yield
    logging.root.setLevel(level)
    logging.disable(disabled)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            logger.setLevel(levels.get(name, logging.NOTSET))


def _deliver(logs: list[RelayedLog]) -> None:
    for log in logs:
        deliver(log, 1)


# Log lines


def test_a_log_line_reaches_the_parents_logger_with_the_workers_number(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)

    _deliver(run_worker("logging.getLogger('user.decode').info('%d of %s', 3, [1, 2])"))

    [record] = caplog.records
    assert (record.name, record.levelname) == ("user.decode", "INFO")
    assert record.getMessage() == "[worker 1] 3 of [1, 2]"
    assert vars(record)["worker"] == 1
    assert record.process not in (None, logging.LogRecord("", 0, "", 0, "", (), None).process)
    assert record.processName == "gristmill-worker-1"
    assert (record.funcName, record.threadName) == ("<module>", "MainThread")


def test_a_traceback_and_extra_fields_come_along(caplog: pytest.LogCaptureFixture):
    program = """
        try:
            1 / 0
        except ZeroDivisionError:
            logging.exception("failed", extra={"record_key": 7, "lock": object()})
    """

    _deliver(run_worker(program))

    [record] = caplog.records
    assert record.exc_text is not None
    assert record.exc_text.endswith("ZeroDivisionError: division by zero")
    assert vars(record)["record_key"] == 7
    assert "ZeroDivisionError" in caplog.text


def test_a_line_whose_arguments_do_not_fit_is_logged_anyway(caplog: pytest.LogCaptureFixture):
    _deliver(run_worker("logging.warning('%d', 'x')"))

    assert caplog.messages[0].startswith("[worker 1] '%d', which its arguments ('x',) do not fit")


def test_levels_of_the_parent_hold_in_the_worker():
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("quiet").setLevel(logging.ERROR)
    logging.getLogger("loud.part").setLevel(logging.DEBUG)
    program = """
        logging.info("no")
        logging.warning("root")
        logging.getLogger("quiet.sub").warning("no")
        logging.getLogger("loud.part").debug("loud")
    """

    assert [log.attributes["msg"] for log in run_worker(program)] == ["root", "loud"]


def test_what_the_parent_disabled_is_disabled_in_the_worker():
    logging.disable(logging.WARNING)

    sent = run_worker("logging.warning('no'); logging.error('yes')")

    assert [log.attributes["msg"] for log in sent] == ["yes"]


def test_the_parents_level_has_the_last_word(caplog: pytest.LogCaptureFixture):
    sent = run_worker("logging.getLogger('user').warning('no longer wanted')")
    logging.getLogger("user").setLevel(logging.ERROR)

    _deliver(sent)

    assert caplog.records == []


def test_a_logger_with_handlers_of_its_own_gets_its_lines():
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    logger, handler = logging.getLogger("apart"), Keep()
    logger.addHandler(handler)
    logger.propagate = False
    try:
        _deliver(run_worker("logging.getLogger('apart').error('here')"))
    finally:
        logger.removeHandler(handler)
        logger.propagate = True

    assert lines == ["[worker 1] here"]


def test_a_level_has_the_name_that_the_parent_set(caplog: pytest.LogCaptureFixture):
    sent = run_worker("logging.log(33, 'hm')")
    logging.addLevelName(33, "NOTICE")

    _deliver(sent)

    assert caplog.records[0].levelname == "NOTICE"


def test_a_broken_handler_does_not_stop_the_delivery(capsys: pytest.CaptureFixture[str]):
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("broken")

    sent = run_worker("logging.getLogger('user').error('x')")
    logger, handler = logging.getLogger("user"), Broken()
    logger.addHandler(handler)
    try:
        _deliver(sent)
    finally:
        logger.removeHandler(handler)

    assert capsys.readouterr().err == (
        "gristmill: lost a message of worker 1: RuntimeError('broken')\n"
    )


def test_a_send_that_fails_is_silent_and_one_that_logs_does_not_recurse():
    program = """
        def fail(log):
            sent.append(log.attributes["msg"])
            logging.error("while sending")
            warnings.warn("while sending")
            raise OSError("the parent is gone")

        logging.root.handlers.clear()
        install_relay(settings, fail, worker=1)
        logging.error("first")
        logging.error("second")
    """

    assert run_worker(program) == ["first", "second"]


def test_basic_config_in_a_worker_adds_no_second_output():
    sent = run_worker("logging.basicConfig(level=logging.DEBUG); logging.warning('once')")

    assert [log.attributes["msg"] for log in sent] == ["once"]


# Warnings

MODULE = """
import warnings

class OddWarning(DeprecationWarning): pass

def call():
    warnings.warn("gone soon", FutureWarning)

def call_odd():
    warnings.warn("odd", OddWarning)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "users_module.py"
    path.write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return path


def test_a_warning_is_issued_in_the_parent_with_category_file_and_line(module: Path):
    sent = run_worker("import users_module; users_module.call()")

    with pytest.warns(FutureWarning) as caught:
        _deliver(sent)

    [warning] = caught
    assert str(warning.message) == "[worker 1] gone soon"
    assert (warning.filename, warning.lineno) == (str(module), 7)


def test_the_parents_filters_by_module_hold_in_both(module: Path):
    program = "import users_module; users_module.call(); warnings.warn('mine')"
    unfiltered = run_worker(program)
    warnings.filterwarnings("ignore", module="users_module")

    filtered = run_worker(program)
    with warnings.catch_warnings(record=True) as caught:
        _deliver(unfiltered)

    assert [log.message for log in filtered] == ["mine"]
    assert [str(warning.message) for warning in caught] == ["[worker 1] mine"]


def test_filters_by_message_category_and_line_hold_in_the_worker():
    warnings.filterwarnings("ignore", message="gone (soon|late)")
    warnings.filterwarnings("ignore", category=BytesWarning)
    program = """
        warnings.warn("GONE SOON, really")
        warnings.warn("still there")
        warnings.warn("bytes", BytesWarning)
    """

    assert [log.message for log in run_worker(program)] == ["still there"]


def test_the_filters_that_python_starts_with_come_across():
    program = """
import pickle, sys
from gristmill._engine.executors.serialization.log_relay import relay_settings
sys.stdout.buffer.write(pickle.dumps(relay_settings()))
"""
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    program = """
        warnings.warn("in the script", DeprecationWarning)
        elsewhere = {"__name__": "elsewhere", "warnings": warnings}
        exec("warnings.warn('there', DeprecationWarning)", elsewhere)
    """

    sent = run_worker(program, pickle.loads(plain.stdout))

    assert [log.message for log in sent] == ["in the script"]


def test_warnings_are_errors_in_a_worker_once_its_plan_is_loaded():
    warnings.simplefilter("error")
    program = """
        warnings.warn("while importing")
        apply_filters(settings)
        try:
            warnings.warn("while running")
        except UserWarning as error:
            sent.append(repr(error))
    """

    first, second = run_worker(program)

    assert first.message == "while importing"
    assert second == "UserWarning('while running')"


def test_no_module_is_imported_for_a_filter(module: Path):
    settings = relay_settings()
    odd = WarningFilter("error", "", ("users_module", "OddWarning"), "", 0)
    settings = replace(settings, filters=(odd, *settings.filters))
    program = """
        apply_filters(settings)
        sent.append("users_module" in sys.modules)
        import users_module
        users_module.call_odd()
        apply_filters(settings)
        try:
            users_module.call_odd()
        except users_module.OddWarning:
            sent.append("raised")
    """

    was_imported, warning, raised = run_worker(program, settings)

    assert (was_imported, warning.message, raised) == (False, "odd", "raised")


def test_a_category_that_only_the_parent_knows_stays_there():
    class LocalWarning(UserWarning):
        pass

    before = len(relay_settings().filters)
    warnings.filterwarnings("ignore", category=LocalWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)

    assert len(relay_settings().filters) == before + 1


def test_a_category_that_the_parent_does_not_know_is_named_and_its_base_is_used(module: Path):
    sent = run_worker("import users_module; users_module.call_odd()")

    with pytest.warns(DeprecationWarning, match="odd") as caught:
        _deliver(sent)

    assert caught[0].category is DeprecationWarning
    assert str(caught[0].message) == "[worker 1] OddWarning: odd"


def test_a_warning_that_a_filter_makes_an_error_is_shown_instead():
    sent = run_worker("warnings.warn('hm')")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        _deliver(sent)

    assert [str(warning.message) for warning in caught] == ["[worker 1] hm"]


def test_captured_warnings_become_log_lines(caplog: pytest.LogCaptureFixture):
    sent = run_worker("warnings.warn('hm')")

    logging.captureWarnings(True)
    try:
        _deliver(sent)
    finally:
        logging.captureWarnings(False)

    [record] = caplog.records
    assert record.name == "py.warnings"
    assert "UserWarning: [worker 1] hm" in record.getMessage()


def test_the_worker_that_replaces_another_does_not_repeat_its_warnings():
    sent = run_worker("warnings.warn('only once, please')")

    with warnings.catch_warnings(record=True) as caught:
        _deliver(sent + sent)

    assert len(caught) == 1


def test_a_record_without_attributes_is_reported_not_raised(capsys: pytest.CaptureFixture[str]):
    deliver(RelayedRecord({}), 3)

    assert capsys.readouterr().err == ("gristmill: lost a message of worker 3: KeyError('name')\n")
