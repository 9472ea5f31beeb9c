"""The errors and warnings that gristmill raises.

GristmillError
├── PlanError (ValueError)            the pipeline, as written, cannot work
│   ├── PlanTypeError (TypeError)     an argument has a type that cannot work
│   │   └── TransformationTypeError (NotImplementedError)  `apply` does not know the transformation
│   └── SpecError (NotImplementedError)  the output of a transform is not known before it runs
├── BatchError (ValueError)           some records do not fit into one batch
│   └── StructureError (TypeError)    their trees are not alike
├── FilterError (ValueError)          a filter removed more elements than the options allow
├── SourceError (RuntimeError)        a data source violates its contract
├── FileError (OSError)               a file cannot be read; has `path`, `offset` and `record`
│   ├── MissingFileError (FileNotFoundError)  it does not exist, or a pattern matches no file
│   ├── ForbiddenFileError (PermissionError)  this process has no permission to read it
│   ├── FormatError (ValueError)      it has another format
│   ├── CorruptFileError (ValueError)  it is truncated or damaged
│   ├── ChangedFileError              it has changed since it was opened or indexed
│   └── StoreError (ConnectionError)  a remote store did not return it, even after retries
├── FeedError (ValueError)            a batch cannot be transferred to the devices
├── StateError (ValueError)           a checkpoint does not fit this pipeline, or is damaged
│   ├── UnknownIndexError (NotImplementedError)  the index of the next element is not known
│   └── NextIndexError (IndexError)   the index of the next element is not one of the dataset
├── ClosedError (ValueError)          the iterator is closed
├── WorkerError (RuntimeError)        a worker process died, stopped responding or could not send
│   └── UnsendableError               an element cannot be sent from a worker to this process
├── MissingExtraError (ImportError)   an optional package is not installed
└── GrainImportedError (ImportError)  Grain itself is imported, so gristmill cannot replace it

GristmillWarning (UserWarning)        the pipeline works, but probably not as intended

Exceptions from user code are never wrapped: they keep their type and gain a note.
"""

from gristmill._addresses import strip_credentials as _strip_credentials
from gristmill._printable import printable as _printable

__all__ = [
    "BatchError",
    "ChangedFileError",
    "ClosedError",
    "CorruptFileError",
    "FeedError",
    "FileError",
    "FilterError",
    "ForbiddenFileError",
    "FormatError",
    "GrainImportedError",
    "GristmillError",
    "GristmillWarning",
    "MissingExtraError",
    "MissingFileError",
    "NextIndexError",
    "PlanError",
    "PlanTypeError",
    "ProvenanceError",
    "SourceError",
    "SpecError",
    "StateError",
    "StoreError",
    "StructureError",
    "TransformationTypeError",
    "UnknownIndexError",
    "UnsendableError",
    "WorkerError",
]


class GristmillError(Exception):
    """Base class of the errors that gristmill itself raises.

    A message may contain names and values from files, so `str(error)` has no invisible characters
    but line ends.
    """

    def __str__(self) -> str:
        return _printable(super().__str__(), keep="\n")


class PlanError(GristmillError, ValueError):
    """The pipeline, as written, cannot work."""


class PlanTypeError(PlanError, TypeError):
    """An argument of the pipeline has a type that cannot work."""


class TransformationTypeError(PlanTypeError, NotImplementedError):
    """`apply` does not know what to do with a transformation."""


class SpecError(PlanError, NotImplementedError):
    """The output of a transform is not known before it runs."""


class FilterError(GristmillError, ValueError):
    """A filter removed more elements than the options allow."""


class BatchError(GristmillError, ValueError):
    """Some records do not fit into one batch.

    Args:
        message: The message of the error.
        row: The position within the batch of the first record that differs from the others; also
            an attribute.
    """

    def __init__(self, message: str, *, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class StructureError(BatchError, TypeError):
    """Some records do not fit into one batch, because their trees are not alike."""


class SourceError(GristmillError, RuntimeError):
    """A data source violates its contract, for example by returning too few records."""


class FileError(GristmillError, OSError):
    """A file cannot be read. The arguments are also attributes, without any credentials.

    >>> error = CorruptFileError("The checksum differs.", path="a.tfrecord", offset=12, record=0)
    >>> print(error)
    The checksum differs. (a.tfrecord, byte 12, record 0)

    Args:
        message: What is wrong, without the location.
        path: The path or address of the file, if known.
        offset: The byte in the file where the problem was found, if known.
        record: The index of the record that could not be read, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        record: int | None = None,
    ) -> None:
        self.message: str = _strip_credentials(message)
        super().__init__(self.message)
        self.path = path
        self.offset = offset
        self.record = record

    @property
    def path(self) -> str | None:
        """The path or address of the file, if known, without credentials."""
        return self._path

    @path.setter
    def path(self, path: str | None) -> None:
        self._path = None if path is None else _strip_credentials(path)

    def __str__(self) -> str:
        fields = [
            self.path,
            None if self.offset is None else f"byte {self.offset:,}",
            None if self.record is None else f"record {self.record:,}",
        ]
        location = _printable(", ".join(field for field in fields if field))
        message = _printable(self.message, keep="\n")
        return f"{message} ({location})" if location else message

    def __reduce__(self) -> tuple[object, ...]:
        return _make_file_error, (type(self), self.message, self.path, self.offset, self.record)


def _make_file_error(
    cls: type[FileError], message: str, path: str | None, offset: int | None, record: int | None
) -> FileError:
    """Unpickle a file error: `__reduce__` cannot pass keyword arguments."""
    return cls(message, path=path, offset=offset, record=record)


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist, or a pattern matches no file."""


class ForbiddenFileError(FileError, PermissionError):
    """This process has no permission to read a file."""


class FormatError(FileError, ValueError):
    """A file has another format than the source reads."""


class CorruptFileError(FileError, ValueError):
    """A file is truncated or damaged."""


class ChangedFileError(FileError):
    """A file has changed since it was opened or indexed."""


class StoreError(FileError, ConnectionError):
    """A remote store did not return a file, even after retries."""


class FeedError(GristmillError, ValueError):
    """A batch cannot be transferred to the devices, or the processes disagree on it."""


class StateError(GristmillError, ValueError):
    """A checkpoint does not fit the pipeline that it is restored into, or is damaged."""


class UnknownIndexError(StateError, NotImplementedError):
    """The index of the next element is not known without counting, or cannot be set."""


class NextIndexError(StateError, IndexError):
    """The index of the next element, of a state of Grain's, is not one of the dataset."""


class ProvenanceError(GristmillError, ValueError):
    """The records that an element was made of cannot be determined."""


class ClosedError(GristmillError, ValueError):
    """The iterator is closed."""


class WorkerError(GristmillError, RuntimeError):
    """A worker process died, stopped responding or could not send an element."""


class UnsendableError(WorkerError):
    """An element cannot be sent from a worker to the process that requested it."""


class MissingExtraError(GristmillError, ImportError):
    """An optional package is not installed."""


class GrainImportedError(GristmillError, ImportError):
    """Grain itself is imported, so gristmill cannot replace it."""


class GristmillWarning(UserWarning):
    """The pipeline works, but probably not as intended."""
