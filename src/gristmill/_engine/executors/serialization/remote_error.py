"""Exceptions between processes: with the same type, message, arguments, attributes and notes.

An exception is unpickled by calling its class with `args`, which fails for many classes. So the
worker tries several methods, and checks each by loading the result. An exception that no method can
transfer arrives as a `WorkerError` with its type and message.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

from gristmill._engine.executors.serialization.arrays import Reduction
from gristmill._engine.executors.serialization.remote_traceback import (
    RemoteTraceback,
    kind_of,
    message_of,
    show_traces,
    take_traces,
)
from gristmill._engine.executors.serialization.serialize import dump, load
from gristmill.errors import WorkerError

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class _ErrorReport:
    """A description of an exception, and its pickle if there is one."""

    where: str
    kind: str
    message: str
    notes: tuple[str, ...]
    traces: list[RemoteTraceback]
    pickled: bytes | None
    loss: str
    """What could not be sent, and why."""


def dump_error(error: BaseException, *, where: str) -> bytes:
    """Pickle an exception. Never raises.

    Args:
        error: The exception.
        where: The title of its traceback, such as "Traceback in worker 1".

    >>> def decode():
    ...     raise UnicodeDecodeError("utf-8", b"...", 0, 1, "invalid")
    >>> try:
    ...     decode()
    ... except UnicodeDecodeError as error:
    ...     back = load_error(dump_error(error, where="Traceback in worker 1"))
    >>> back
    UnicodeDecodeError('utf-8', b'...', 0, 1, 'invalid')
    >>> back.__notes__[0].splitlines()[0]
    'Traceback in worker 1:'
    """
    pickled, loss = _pack(error, where)
    return pickle.dumps(
        _ErrorReport(
            where=where,
            kind=kind_of(error),
            message=message_of(error),
            notes=_call_or((), lambda: _notes(error)),
            traces=_call_or(list[RemoteTraceback](), lambda: take_traces(error)),
            pickled=pickled,
            loss=loss,
        )
    )


def load_error(payload: bytes) -> BaseException:
    """Return the exception, with a note that shows its traceback in the worker. Never raises."""
    report: _ErrorReport = pickle.loads(payload)
    error, loss = _unpack(report)
    traceback = _call_or("", lambda: show_traces(report.traces, where=report.where))
    for note in (loss, traceback):
        if note:
            _call_or(None, lambda note=note: error.add_note(note))
    return error


def _unpack(report: _ErrorReport) -> tuple[BaseException, str]:
    """Return the exception or a substitute, and what of it could not be sent."""
    reason = report.loss
    if report.pickled is not None:
        try:
            error = load(report.pickled)
        except Exception as failure:  # a module that the worker imports may be missing here
            reason = f"{type(failure).__name__}: {failure}"
        else:
            # A `__reduce__` of the class may leave the notes out.
            _call_or(None, lambda: _add_missing_notes(error, report.notes))
            return error, report.loss
    error = WorkerError(f"{report.kind}: {report.message}")
    _add_missing_notes(error, report.notes)
    return error, (
        f"A substitute for the {report.kind} that was raised, which could not be sent ({reason})."
    )


def _pack(error: BaseException, where: str) -> tuple[bytes | None, str]:
    """Return the pickle of an exception by the first method that works, and what is lost."""
    reason = "it was loaded as another exception"
    for method in (_as_it_is, _in_parts):
        try:
            pickled = dump(method(error, where))
            if _is_faithful(load(pickled), error):
                return pickled, ""
        except Exception as failure:  # of the user's `__reduce__`, `__init__` and so on
            reason = f"{type(failure).__name__}: {failure}"
    try:
        parts, replaced = _replace_unsendable(_in_parts(error, where))
        pickled = dump(parts)
        loaded = load(pickled)
    except Exception:
        return None, reason
    if type(loaded) is not type(error):
        return None, reason
    loss = f"Could not be sent, so replaced by `repr`: {', '.join(replaced)}."
    if message_of(loaded) != message_of(error):
        loss += f" The message was: {message_of(error)}"
    return pickled, loss


def _is_faithful(loaded: BaseException, error: BaseException) -> bool:
    return (
        type(loaded) is type(error)
        and message_of(loaded) == message_of(error)
        and [type(item) for item in loaded.args] == [type(item) for item in error.args]
    )


@final
@dataclass(frozen=True)
class _Parts:
    """The parts of an exception. It is loaded without a call of the user's `__init__`."""

    kind: type[BaseException]
    arguments: tuple[object, ...]
    state: dict[str, object]

    def __reduce__(self) -> Reduction:
        return _rebuild, (self.kind, self.arguments, self.state)


@final
@dataclass(frozen=True)
class _Member:
    """An exception of a group, pickled by the method that works for it."""

    payload: bytes

    def __reduce__(self) -> Reduction:
        return load_error, (self.payload,)


def _as_it_is(error: BaseException, where: str) -> BaseException | _Parts:
    # Each member of a group is pickled by its own method, with its own traceback.
    return _in_parts(error, where) if _is_group(error) else error


def _in_parts(error: BaseException, where: str) -> _Parts:
    # `__reduce__` of the built-in class, not of the user's: it includes what is stored in C, such
    # as the file name of an OSError.
    reduced = cast(Reduction, _builtin_base(type(error)).__reduce__(error))
    arguments: tuple[object, ...] = reduced[1]
    if _is_group(error):
        members = cast("Sequence[BaseException]", arguments[1])
        arguments = (
            arguments[0],
            [_Member(dump_error(member, where=where)) for member in members],
        )
    return _Parts(type(error), arguments, dict(reduced[2]) if len(reduced) > 2 else {})


def _replace_unsendable(parts: _Parts) -> tuple[_Parts, list[str]]:
    """Replace arguments and attributes that cannot be sent by their `repr`; return their names."""
    replaced: list[str] = []

    def sendable(name: str, value: object) -> object:
        try:
            load(dump(value))
        except Exception:
            replaced.append(name)
            return _call_or(f"<{type(value).__name__}>", lambda: repr(value))
        return value

    arguments = tuple(sendable(f"argument {n}", item) for n, item in enumerate(parts.arguments))
    state = {name: sendable(f"`{name}`", value) for name, value in parts.state.items()}
    return _Parts(parts.kind, arguments, state), replaced


def _rebuild(
    kind: type[BaseException], arguments: tuple[object, ...], state: dict[str, object]
) -> BaseException:
    base: Any = _builtin_base(kind)
    error = base.__new__(kind, *arguments)
    base.__init__(error, *arguments)
    BaseException.__setstate__(error, state)
    return error


def _builtin_base(kind: type[BaseException]) -> type[BaseException]:
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def _notes(error: BaseException) -> tuple[str, ...]:
    return tuple("".join((str(note), "")) for note in getattr(error, "__notes__", ()))


def _add_missing_notes(error: BaseException, notes: Sequence[str]) -> None:
    present = _notes(error)
    for note in notes:
        if note not in present:
            error.add_note(note)


def _call_or(default: T, function: Callable[[], T]) -> T:
    """Return the result of a function that runs user code, or `default` if it raises."""
    try:
        return function()
    except Exception:
        return default
