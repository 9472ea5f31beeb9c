"""Log lines and warnings of a worker reach those of the parent, with the worker's number.

    parent                                       worker
    relay_settings()  ── filters, levels ──▶     install_relay(settings, send, worker)
    deliver(message, worker)  ◀── plain data ──  each log record and each warning

The worker has the parent's filters and levels, so that little is sent in vain; what arrives goes
through the parent's own, which have the last word.
"""

import inspect
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, TypedDict, cast, final

Name: TypeAlias = tuple[str, str]
"""A class by its module and its name there."""

Filter: TypeAlias = tuple[Any, str, Name, str, int]
"""What `warnings.filterwarnings` takes: action, message, category, module, line."""


class RelaySettings(TypedDict):
    """What a worker needs to know of the parent's logging and warnings: plain data."""

    filters: list[Filter]
    levels: dict[str, int]
    root_level: int
    disabled_up_to: int


def relay_settings() -> RelaySettings:
    """Give the parent's filters of warnings and levels of loggers.

    A filter on a category that only this process can know, being defined in its script, stays out.

    >>> sorted(relay_settings())
    ['disabled_up_to', 'filters', 'levels', 'root_level']
    """
    loggers = list(logging.root.manager.loggerDict.items())
    return {
        "filters": [
            (action, _pattern(message), name, _pattern(module), line)
            for action, message, category, module, line in list(warnings.filters)
            if (name := _portable_name(category)) is not None
        ],
        "levels": {
            name: logger.level
            for name, logger in loggers
            if isinstance(logger, logging.Logger) and logger.level
        },
        "root_level": logging.root.level,
        "disabled_up_to": logging.root.manager.disable,
    }


def install_relay(
    settings: RelaySettings, send: Callable[[dict[str, Any]], object], worker: int
) -> None:
    """Send the log lines and warnings of this process, which is a worker, to the parent.

    Warnings are errors only after `apply_filters`.

    `send` may be called from any thread; what it raises is dropped, as there is no one to tell.
    """
    relay = _Relay(send, worker)
    _filter_warnings(settings, error="default")
    warnings.showwarning = relay.show_warning
    logging.root.addHandler(relay)
    logging.root.setLevel(settings["root_level"])
    logging.disable(settings["disabled_up_to"])
    for name, level in settings["levels"].items():
        logging.getLogger(name).setLevel(level)


def apply_filters(settings: RelaySettings) -> None:
    """Filter warnings exactly as the parent does; to be called once the plan is loaded.

    Not before, for two reasons. Loading imports the user's modules, and what they warn of then
    may be an error to the parent by now, but was none when it imported them. And nothing is
    imported for the sake of a filter, as it may be JAX: one on a category from a module that is
    not loaded is left out.
    """
    _filter_warnings(settings, error="error")


def _filter_warnings(settings: RelaySettings, *, error: Any) -> None:
    warnings.resetwarnings()
    for action, message, (module_name, name), module, line in settings["filters"]:
        category = _loaded_class(module_name, name)
        if category is not None:
            action = error if action == "error" else action
            warnings.filterwarnings(action, message, category, module, line, append=True)


def deliver(message: dict[str, Any], worker: int) -> None:
    """Log a worker's record, or issue its warning, in this process. Never raises.

    The thread that calls this feeds the user's loop, so whatever goes wrong ends here: a warning
    that a filter makes an error is shown instead, as the code to stop has long gone on; what breaks
    a handler is told on standard error, where `logging` tells such things, too.
    """
    try:
        if message["is_warning"]:
            _warn(message, worker)
        else:
            _log(message, worker)
    except Exception as error:
        if logging.raiseExceptions:
            with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
                sys.stderr.write(f"gristmill: lost a message of worker {worker}: {error!r}\n")


@final
class _Relay(logging.Handler):
    """Takes what is logged and warned in a worker, and sends it as plain data."""

    def __init__(self, send: Callable[[dict[str, Any]], object], worker: int) -> None:
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
        file: Any = None,
        line: str | None = None,
    ) -> None:
        """Stand in for `warnings.showwarning`."""
        self._send_safely(lambda: _warning_as_data(message, category, filename, lineno))

    def _send_safely(self, make: Callable[[], dict[str, Any]]) -> None:
        if getattr(self._sending, "is_on", False):
            return  # sending itself logs or warns: once is enough
        self._sending.is_on = True
        try:
            self._send(make())
        except Exception:  # the parent is gone, or what is logged cannot be told
            pass
        finally:
            self._sending.is_on = False


_MADE_ANEW = {"args", "exc_info", "exc_text", "levelname", "message", "msg", "processName"}
"""What of a record does not travel as it is."""


def _record_as_data(record: logging.LogRecord, worker: int) -> dict[str, Any]:
    data: dict[str, Any] = {
        name: value
        for name, value in vars(record).items()
        if name not in _MADE_ANEW and type(value) in (str, int, float, bool, type(None))
    }
    exc_text = record.exc_text
    if record.exc_info and not exc_text:
        exc_text = logging.Formatter().formatException(record.exc_info)
    try:
        text = record.getMessage()
    except Exception as error:
        text = f"{record.msg!r}, which its arguments {record.args!r} do not fit ({error})"
    return {
        **data,
        "is_warning": False,
        "msg": text,
        "exc_text": exc_text,
        "processName": f"gristmill-worker-{worker}",
    }


def _log(message: dict[str, Any], worker: int) -> None:
    attributes = {name: value for name, value in message.items() if name != "is_warning"}
    logger = logging.getLogger(attributes["name"])
    level: int = attributes["levelno"]
    if not logger.isEnabledFor(level):
        return
    attributes |= {
        "msg": f"[worker {worker}] {attributes['msg']}",
        "args": (),
        "levelname": logging.getLevelName(level),  # by the names of this process
        "worker": worker,
    }
    logger.handle(logging.makeLogRecord(attributes))


def _warning_as_data(
    message: Warning | str, category: type[Warning], filename: str, lineno: int
) -> dict[str, Any]:
    return {
        "is_warning": True,
        "text": str(message),
        "category": category.__qualname__,
        "kinds": [(kind.__module__, kind.__qualname__) for kind in category.__mro__],
        "filename": filename,
        "lineno": lineno,
        "module": _module_at(filename, lineno),
    }


_REGISTRY: dict[str | tuple[str, type[Warning], int], int] = {}
"""What was warned of before: a worker that replaces another does not repeat it."""


def _warn(message: dict[str, Any], worker: int) -> None:
    text, (kind, is_exact) = message["text"], _nearest_warning(message["kinds"])
    told = text if is_exact else f"{message['category']}: {text}"
    told = f"[worker {worker}] {told}"
    filename, lineno = message["filename"], message["lineno"]
    try:
        warnings.warn_explicit(told, kind, filename, lineno, message["module"], _REGISTRY)
    except Warning:
        warnings.showwarning(told, kind, filename, lineno)


def _nearest_warning(kinds: list[Name]) -> tuple[type[Warning], bool]:
    """Give the category, or the nearest base of it that is loaded here, and whether it is it."""
    for number, (module, name) in enumerate(kinds):
        found = _loaded_class(module, name)
        if found is not None:
            return found, number == 0
    return UserWarning, False


def _module_at(filename: str, lineno: int) -> str | None:
    """Name the module of the line that is warned of, as filters know it: it is being executed."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_lineno == lineno and frame.f_code.co_filename == filename:
            return frame.f_globals.get("__name__")
        frame = frame.f_back
    return None


def _pattern(matcher: Any) -> str:
    """Give a regular expression as text; those that Python starts with are names in full."""
    if matcher is None:
        return ""
    return re.escape(matcher) + r"\Z" if isinstance(matcher, str) else matcher.pattern


def _portable_name(kind: Any) -> Name | None:
    """Name a class, if that is how another process finds it."""
    if not isinstance(kind, type):
        return None
    module, name = kind.__module__, kind.__qualname__
    is_found = module != "__main__" and _find(sys.modules.get(module), name) is kind
    return (module, name) if is_found else None


def _loaded_class(module: str, name: str) -> type[Warning] | None:
    found = _find(sys.modules.get(module), name)
    is_warning = isinstance(found, type) and issubclass(found, Warning)
    return cast("type[Warning]", found) if is_warning else None


def _find(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
