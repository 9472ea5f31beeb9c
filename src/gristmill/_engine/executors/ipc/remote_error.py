"""An exception across processes: the same type, message, arguments, attributes and notes.

Exceptions are pickled by calling their class again, which many classes do not bear. So several ways
are tried in the worker, each tested there and then; what no way can carry arrives as text.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

from gristmill._engine.executors.ipc.remote_traceback import (
    Trace,
    kind_of,
    show_traces,
    take_traces,
    text_of,
)
from gristmill._engine.executors.ipc.serialize import dump, load
from gristmill.errors import WorkerError

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class _Report:
    """An exception as text, and its pickle if there is one."""

    where: str
    kind: str
    message: str
    notes: tuple[str, ...]
    traces: list[Trace]
    parcel: bytes | None
    remark: str
    """What of it could not be sent, and why."""


def dump_error(error: BaseException, *, where: str) -> bytes:
    """Pickle an exception; `where` heads its traceback: "Traceback in worker 1". Never raises.

    >>> def decode():
    ...     raise UnicodeDecodeError("utf-8", b"...", 0, 1, "no text")
    >>> try:
    ...     decode()
    ... except UnicodeDecodeError as error:
    ...     back = load_error(dump_error(error, where="Traceback in worker 1"))
    >>> back
    UnicodeDecodeError('utf-8', b'...', 0, 1, 'no text')
    >>> back.__notes__[0].splitlines()[0]
    'Traceback in worker 1:'
    """
    parcel, remark = _pack(error, where)
    return pickle.dumps(
        _Report(
            where=where,
            kind=kind_of(error),
            message=text_of(error),
            notes=_or((), lambda: _notes(error)),
            traces=_or(list[Trace](), lambda: take_traces(error)),
            parcel=parcel,
            remark=remark,
        )
    )


def load_error(payload: bytes) -> BaseException:
    """Give the exception, with a note that shows the traceback it had over there. Never raises."""
    report: _Report = pickle.loads(payload)
    error, remark = _unpack(report)
    traceback = _or("", lambda: show_traces(report.traces, where=report.where))
    for note in (remark, traceback):
        if note:
            _or(None, lambda note=note: error.add_note(note))
    return error


def _unpack(report: _Report) -> tuple[BaseException, str]:
    why = report.remark
    if report.parcel is not None:
        try:
            return load(report.parcel), report.remark
        except Exception as failure:  # what the worker can import, the parent need not
            why = f"{type(failure).__name__}: {failure}"
    error = WorkerError(f"{report.kind}: {report.message}")
    for note in report.notes:
        error.add_note(note)
    return error, (
        f"A stand-in for the {report.kind} that was raised, which could not be sent ({why})."
    )


def _pack(error: BaseException, where: str) -> tuple[bytes | None, str]:
    """Give the pickle of an exception, made in the first way that works, and what it leaves out."""
    why = "it came back as another exception"
    for form in (_as_it_is, _in_parts):
        try:
            parcel = dump(form(error, where))
            if _is_faithful(load(parcel), error):
                return parcel, ""
        except Exception as failure:  # of the user's `__reduce__`, `__init__`, ...: the next way
            why = f"{type(failure).__name__}: {failure}"
    try:
        parts, replaced = _without_the_unsendable(_in_parts(error, where))
        parcel = dump(parts)
        back = load(parcel)
    except Exception:
        return None, why
    if type(back) is not type(error):
        return None, why
    remark = f"Could not be sent, and came as text: {', '.join(replaced)}."
    if text_of(back) != text_of(error):
        remark += f" The message was: {text_of(error)}"
    return parcel, remark


def _is_faithful(back: BaseException, error: BaseException) -> bool:
    return (
        type(back) is type(error)
        and text_of(back) == text_of(error)
        and [type(item) for item in back.args] == [type(item) for item in error.args]
    )


@final
@dataclass(frozen=True)
class _Parts:
    """An exception as what it is made of; loaded, it is made without the user's `__init__`."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.kind, self.arguments, self.state)


@final
@dataclass(frozen=True)
class _Member:
    """An exception in a group, packed in its own way; loaded, it is that exception."""

    payload: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return load_error, (self.payload,)


def _as_it_is(error: BaseException, where: str) -> BaseException | _Parts:
    # Of a group each member goes in its own way, with its own traceback.
    return _in_parts(error, where) if _is_group(error) else error


def _in_parts(error: BaseException, where: str) -> _Parts:
    # The built-in class's own `__reduce__`, not the user's: it knows what is kept out of Python's
    # sight, such as the file name of an OSError.
    reduced: Any = _builtin_base(type(error)).__reduce__(error)
    arguments: tuple[Any, ...] = reduced[1]
    if _is_group(error):
        members = cast("Sequence[BaseException]", arguments[1])
        arguments = (
            arguments[0],
            [_Member(dump_error(member, where=where)) for member in members],
        )
    return _Parts(type(error), arguments, dict(reduced[2]) if len(reduced) > 2 else {})


def _without_the_unsendable(parts: _Parts) -> tuple[_Parts, list[str]]:
    """Put text in place of the arguments and attributes that cannot be sent, and name those."""
    replaced: list[str] = []

    def sendable(name: str, value: Any) -> Any:
        try:
            load(dump(value))
        except Exception:
            replaced.append(name)
            return _or(f"<{type(value).__name__}>", lambda: repr(value))
        return value

    arguments = tuple(sendable(f"argument {n}", item) for n, item in enumerate(parts.arguments))
    state = {name: sendable(f"`{name}`", value) for name, value in parts.state.items()}
    return _Parts(parts.kind, arguments, state), replaced


def _rebuild(
    kind: type[BaseException], arguments: tuple[Any, ...], state: dict[str, Any]
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


def _or(otherwise: T, give: Callable[[], T]) -> T:
    """Give what the user's code gives, or something else if it raises."""
    try:
        return give()
    except Exception:
        return otherwise
