"""Relay of log records and warnings from a worker to the parent, with the worker's number.

    parent                                       worker
    relay_settings()  ── filters, levels ──▶     install_relay(settings, send, worker)
    deliver(log, worker)  ◀── plain data ──      each log record and each warning

The worker has the parent's filters and levels, so that it sends little that the parent drops. What
arrives passes through the filters and levels of the parent once more, in case they have changed.
"""

import inspect
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias, cast, final

from gristmill._base.log_once import ONCE, is_first

ClassName: TypeAlias = tuple[str, str]
"""The module of a class, and its qualified name there."""

LogValue: TypeAlias = str | int | float | bool | None
"""An attribute of a log record that is sent."""

Action: TypeAlias = Literal["default", "error", "ignore", "always", "module", "once"]
"""What a filter does with a warning."""


@final
@dataclass(frozen=True, slots=True)
class WarningFilter:
    """The arguments of `warnings.filterwarnings`, with the category by name."""

    action: Action
    message: str
    category: ClassName
    module: str
    line: int


@final
@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The parent's settings of logging and warnings, as plain data."""

    filters: tuple[WarningFilter, ...]
    levels: Mapping[str, int]
    """Levels of loggers by name, where they are set."""
    root_level: int
    disabled_up_to: int
    """See `logging.disable`."""


@final
@dataclass(frozen=True, slots=True)
class RelayedRecord:
    """A log record, as plain data."""

    attributes: Mapping[str, LogValue]


@final
@dataclass(frozen=True, slots=True)
class RelayedWarning:
    """A warning, as plain data."""

    message: str
    category: str
    bases: tuple[ClassName, ...]
    """The category and its base classes, the nearest first."""
    filename: str
    line: int
    module: str | None


RelayedLog: TypeAlias = RelayedRecord | RelayedWarning

SendLog: TypeAlias = Callable[[RelayedLog], object]


def relay_settings() -> RelaySettings:
    """Return the parent's filters of warnings and levels of loggers.

    A filter on a category that another process cannot import, because it is defined in the script,
    is left out.

    >>> relay_settings().disabled_up_to
    0
    """
    loggers = list(logging.root.manager.loggerDict.items())
    return RelaySettings(
        filters=tuple(
            WarningFilter(cast("Action", action), _pattern(message), name, _pattern(module), line)
            for action, message, category, module, line in list(warnings.filters)
            if (name := _portable_name(category)) is not None
        ),
        levels={
            name: logger.level
            for name, logger in loggers
            if isinstance(logger, logging.Logger) and logger.level
        },
        root_level=logging.root.level,
        disabled_up_to=logging.root.manager.disable,
    )


def install_relay(settings: RelaySettings, send: SendLog, worker: int) -> None:
    """Send the log records and warnings of this process, which is a worker, to the parent.

    Warnings become errors only after `apply_filters`.

    Args:
        settings: The settings of the parent.
        send: Sends a record or a warning. Any thread may call it; its exceptions are ignored.
        worker: The number of this worker.
    """
    relay = _Relay(send, worker)
    _filter_warnings(settings, error="default")
    warnings.showwarning = relay.show_warning
    logging.root.addHandler(relay)
    logging.root.setLevel(settings.root_level)
    logging.disable(settings.disabled_up_to)
    for name, level in settings.levels.items():
        logging.getLogger(name).setLevel(level)


def apply_filters(settings: RelaySettings) -> None:
    """Filter warnings exactly as the parent does. Call this once the plan is loaded.

    Not before, for two reasons. Loading the plan imports the user's modules. A warning that they
    issue may be an error in the parent by now, but was none when the parent imported them. And no
    module is imported for a filter, since it may be JAX: a filter on a category of a module that is
    not loaded is left out.
    """
    _filter_warnings(settings, error="error")


def _filter_warnings(settings: RelaySettings, *, error: Action) -> None:
    """Replace all filters; `error` is the action of those that raise."""
    warnings.resetwarnings()
    for one in settings.filters:
        category = _loaded_warning(*one.category)
        if category is not None:
            action = error if one.action == "error" else one.action
            warnings.filterwarnings(
                action, one.message, category, one.module, one.line, append=True
            )


def deliver(log: RelayedLog, worker: int) -> None:
    """Handle a worker's log record, or issue its warning, in this process. Never raises.

    The thread that calls this feeds the user's loop, so no exception leaves this function. A
    warning that a filter turns into an error is shown instead, because the code that it should stop
    has long continued. An exception of a handler is written to standard error, as `logging` does.
    """
    try:
        if isinstance(log, RelayedWarning):
            _warn(log, worker)
        else:
            _log(log, worker)
    except Exception as error:
        if logging.raiseExceptions:
            with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
                sys.stderr.write(f"gristmill: lost a message of worker {worker}: {error!r}\n")


@final
class _Relay(logging.Handler):
    """Receives what is logged and warned in a worker, and sends it as plain data."""

    def __init__(self, send: SendLog, worker: int) -> None:
        super().__init__()
        self._send = send
        self._worker = worker
        self._sending = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        self._send_safely(lambda: _record_as_data(record, self._worker))

    def show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Replace `warnings.showwarning`."""
        self._send_safely(lambda: _warning_as_data(message, category, filename, lineno))

    def _send_safely(self, make: Callable[[], RelayedLog]) -> None:
        if getattr(self._sending, "is_on", False):
            return  # sending itself logs or warns: that would recurse
        self._sending.is_on = True
        try:
            self._send(make())
        except Exception:  # the parent is gone, or a `__str__` of the user raises
            pass
        finally:
            self._sending.is_on = False


_NOT_SENT = {"args", "exc_info", "exc_text", "levelname", "message", "msg", "processName"}
"""Attributes of a record that are not sent as they are."""


def _record_as_data(record: logging.LogRecord, worker: int) -> RelayedRecord:
    attributes: dict[str, LogValue] = {
        name: value
        for name, value in vars(record).items()
        if name not in _NOT_SENT and type(value) in (str, int, float, bool, type(None))
    }
    exc_text = record.exc_text
    if record.exc_info and not exc_text:
        exc_text = logging.Formatter().formatException(record.exc_info)
    try:
        message = record.getMessage()
    except Exception as error:
        message = f"{record.msg!r}, which its arguments {record.args!r} do not fit ({error})"
    return RelayedRecord(
        attributes
        | {
            "msg": message,
            "exc_text": exc_text,
            "processName": f"gristmill-worker-{worker}",
        }
    )


def _log(record: RelayedRecord, worker: int) -> None:
    attributes = record.attributes
    logger = logging.getLogger(cast("str", attributes["name"]))
    level = cast("int", attributes["levelno"])
    once = attributes.get(ONCE)
    if not logger.isEnabledFor(level) or (once is not None and not is_first(str(once))):
        return
    logger.handle(
        logging.makeLogRecord(
            {
                **attributes,
                "msg": f"[worker {worker}] {attributes['msg']}",
                "args": (),
                "levelname": logging.getLevelName(level),  # by the names of this process
                "worker": worker,
            }
        )
    )


def _warning_as_data(
    message: Warning | str, category: type[Warning], filename: str, line: int
) -> RelayedWarning:
    return RelayedWarning(
        message=str(message),
        category=category.__qualname__,
        bases=tuple((base.__module__, base.__qualname__) for base in category.__mro__),
        filename=filename,
        line=line,
        module=_module_at(filename, line),
    )


_REGISTRY: dict[str | tuple[str, type[Warning], int], int] = {}
"""The warnings issued so far: a worker that replaces another one does not repeat them."""


def _warn(warning: RelayedWarning, worker: int) -> None:
    category, is_exact = _nearest_loaded(warning.bases)
    message = warning.message if is_exact else f"{warning.category}: {warning.message}"
    message = f"[worker {worker}] {message}"
    filename, line = warning.filename, warning.line
    try:
        warnings.warn_explicit(message, category, filename, line, warning.module, _REGISTRY)
    except Warning:
        warnings.showwarning(message, category, filename, line)


def _nearest_loaded(bases: tuple[ClassName, ...]) -> tuple[type[Warning], bool]:
    """Return the first of some classes that is loaded here, and whether it is the very first."""
    for number, (module, name) in enumerate(bases):
        found = _loaded_warning(module, name)
        if found is not None:
            return found, number == 0
    return UserWarning, False


def _module_at(filename: str, line: int) -> str | None:
    """Return the name of the module with a line that is being executed, as filters know it."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_lineno == line and frame.f_code.co_filename == filename:
            return frame.f_globals.get("__name__")
        frame = frame.f_back
    return None


def _pattern(matcher: re.Pattern[str] | str | None) -> str:
    """Return a regular expression as a string; Python's own filters have plain names instead."""
    if matcher is None:
        return ""
    return re.escape(matcher) + r"\Z" if isinstance(matcher, str) else matcher.pattern


def _portable_name(category: object) -> ClassName | None:
    """Return the name by which another process finds a class; `None` if there is none."""
    if not isinstance(category, type):
        return None
    module, name = category.__module__, category.__qualname__
    is_found = module != "__main__" and _find(sys.modules.get(module), name) is category
    return (module, name) if is_found else None


def _loaded_warning(module: str, name: str) -> type[Warning] | None:
    """Return a category of warnings if its module is loaded."""
    found = _find(sys.modules.get(module), name)
    return found if isinstance(found, type) and issubclass(found, Warning) else None


def _find(module: object, name: str) -> object:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
