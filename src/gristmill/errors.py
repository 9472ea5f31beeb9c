"""Every error gristmill raises on its own account.

GristmillError
├── PlanError (ValueError)            the pipeline, as written, cannot work
│   ├── PlanTypeError (TypeError)     an argument is of a type that cannot work
│   └── SpecError (NotImplementedError)  what a step gives is not known before it runs
├── BatchError (ValueError)           these records do not fit into one batch
├── FilterError (ValueError)          a filter left out more elements than the options allow
├── SourceError (RuntimeError)        a data source broke its promise
├── FileError (OSError)               a file cannot be read; it has `path`, `offset`, `record`
│   ├── MissingFileError (FileNotFoundError)  it is not there, or a pattern matches nothing
│   ├── ForbiddenFileError (PermissionError)  it may not be read
│   ├── FormatError (ValueError)      it is of another format
│   ├── CorruptFileError (ValueError)  it is cut short or damaged
│   ├── ChangedFileError              it is not the one that was opened or indexed
│   └── StoreError (ConnectionError)  a remote store did not give it, also after retries
├── FeedError (ValueError)            a batch cannot go to the devices it is fed to
├── StateError (ValueError)           a checkpoint does not fit this pipeline, or is damaged
├── ClosedError (ValueError)          the iterator was closed
├── WorkerError (RuntimeError)        a worker process died, stopped answering or could not send
│   └── UnsendableError               what a worker made cannot be sent to this process
└── MissingExtraError (ImportError)   an optional package is not installed

GristmillWarning (UserWarning)        the pipeline works, but hardly as meant

An exception raised by the user's own code is never wrapped: it keeps its type and gains a note.
"""


class GristmillError(Exception):
    """Anything gristmill raises on its own account."""


class PlanError(GristmillError, ValueError):
    """The pipeline, as written, cannot work."""


class PlanTypeError(PlanError, TypeError):
    """An argument of the pipeline is of a type that cannot work."""


class SpecError(PlanError, NotImplementedError):
    """What a step gives is not known before it runs."""


class FilterError(GristmillError, ValueError):
    """A filter left out more elements than the options allow."""


class BatchError(GristmillError, ValueError):
    """Records that do not fit into one batch; `row` is the first that differs from the others."""

    def __init__(self, message: str, *, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class SourceError(GristmillError, RuntimeError):
    """A data source broke its promise."""


class FileError(GristmillError, OSError):
    """A file cannot be read: where it is, and at which byte and record that shows, if known.

    >>> error = CorruptFileError("The checksum differs.", path="a.tfrecord", offset=12, record=0)
    >>> print(error)
    The checksum differs. (a.tfrecord, byte 12, record 0)
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        record: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset
        self.record = record

    def __str__(self) -> str:
        places = [
            self.path,
            None if self.offset is None else f"byte {self.offset:,}",
            None if self.record is None else f"record {self.record:,}",
        ]
        told = ", ".join(place for place in places if place)
        return f"{self.message} ({told})" if told else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _file_error, (type(self), self.message, self.path, self.offset, self.record)


def _file_error(
    kind: type[FileError], message: str, path: str | None, offset: int | None, record: int | None
) -> FileError:
    return kind(message, path=path, offset=offset, record=record)


class MissingFileError(FileError, FileNotFoundError):
    """A file is not there, or a pattern matches nothing."""


class ForbiddenFileError(FileError, PermissionError):
    """A file may not be read."""


class FormatError(FileError, ValueError):
    """A file is of another format."""


class CorruptFileError(FileError, ValueError):
    """A file is cut short or damaged."""


class ChangedFileError(FileError):
    """A file is not the one that was opened or indexed."""


class StoreError(FileError, ConnectionError):
    """A remote store did not give a file, also after retries."""


class FeedError(GristmillError, ValueError):
    """A batch cannot go to the devices it is fed to, or processes disagree on it."""


class StateError(GristmillError, ValueError):
    """A checkpoint does not fit the pipeline it was given to, or is damaged."""


class ClosedError(GristmillError, ValueError):
    """The iterator was closed."""


class WorkerError(GristmillError, RuntimeError):
    """A worker process died, stopped answering or could not send."""


class UnsendableError(WorkerError):
    """What a worker made cannot be sent to the process that asked for it."""


class MissingExtraError(GristmillError, ImportError):
    """An optional package is not installed."""


class GristmillWarning(UserWarning):
    """The pipeline works, but hardly as it was meant."""
