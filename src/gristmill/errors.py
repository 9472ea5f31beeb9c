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
├── ProvenanceError (ValueError)      the records of an element cannot be determined
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

    >>> import gristmill
    >>> try:
    ...     gristmill.load([1, 2], batch_size=0)
    ... except GristmillError as error:
    ...     print(type(error).__name__)
    PlanError
    """

    def __str__(self) -> str:
        return _printable(super().__str__(), keep="\n")


class PlanError(GristmillError, ValueError):
    """The pipeline, as written, cannot work.

    >>> from gristmill import SequentialSampler
    >>> try:
    ...     SequentialSampler(0)
    ... except PlanError as error:
    ...     print(error)
    `num_records` must be at least 1, got 0.
    """


class PlanTypeError(PlanError, TypeError):
    """An argument of the pipeline has a type that cannot work.

    >>> from gristmill import MapDataset
    >>> try:
    ...     MapDataset.range(4).batch("2")
    ... except PlanTypeError as error:
    ...     print(error)
    `batch_size` must be an integer, got '2' of type str.
    """


class TransformationTypeError(PlanTypeError, NotImplementedError):
    """`apply` does not know what to do with a transformation.

    >>> from gristmill import MapDataset
    >>> try:
    ...     MapDataset.range(4).apply(3)
    ... except TransformationTypeError as error:
    ...     print(str(error).partition(".")[0])
    Transformation type: 3 is not supported
    """


class SpecError(PlanError, NotImplementedError):
    """The output of a transform is not known before it runs.

    >>> from gristmill import MapDataset
    >>> from gristmill.experimental import get_element_spec
    >>> try:
    ...     get_element_spec(MapDataset.range(4).map(float))
    ... except SpecError as error:
    ...     print(str(error).partition(",")[0])
    Map float does not implement `output_spec`
    """


class FilterError(GristmillError, ValueError):
    """A filter removed more elements than the options allow.

    >>> from gristmill import MapDataset
    >>> from gristmill.experimental import DatasetOptions, WithOptionsIterDataset
    >>> few = MapDataset.range(2000).filter(lambda x: x < 10).to_iter_dataset()
    >>> try:
    ...     list(WithOptionsIterDataset(few, DatasetOptions(filter_raise_threshold_ratio=0.5)))
    ... except FilterError as error:
    ...     print(str(error).partition(".")[0])
    Filter <lambda> skipped 99
    """


class BatchError(GristmillError, ValueError):
    """Some records do not fit into one batch.

    >>> from gristmill import MapDataset
    >>> try:
    ...     MapDataset.source([{"x": 1}, {"y": 1}]).batch(2)[0]
    ... except BatchError as error:
    ...     print(error.row)
    1

    Args:
        message: The message of the error.
        row: The position within the batch of the first record that differs from the others; also
            an attribute.
    """

    def __init__(self, message: str, *, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


class StructureError(BatchError, TypeError):
    """Some records do not fit into one batch, because their trees are not alike.

    >>> from gristmill import load
    >>> try:
    ...     list(load([{"x": 1}, {"y": 2}], batch_size=2, num_epochs=1))
    ... except StructureError as error:
    ...     print(error.row)
    1
    """


class SourceError(GristmillError, RuntimeError):
    """A data source violates its contract, for example by returning too few records.

    >>> from gristmill import MapDataset
    >>> class TooFew(list):
    ...     def __getitems__(self, indices):
    ...         return []
    >>> try:
    ...     MapDataset.source(TooFew("ab")).batch(2)[0]
    ... except SourceError as error:
    ...     print("the source is wrong")
    the source is wrong
    """


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
    """A file does not exist, or a pattern matches no file.

    >>> from gristmill.sources import open_source
    >>> try:
    ...     open_source("not-here-*.parquet")
    ... except MissingFileError as error:
    ...     print(error.path)
    not-here-*.parquet
    """


class ForbiddenFileError(FileError, PermissionError):
    """This process has no permission to read a file."""


class FormatError(FileError, ValueError):
    """A file has another format than the source reads.

    >>> import tempfile
    >>> from gristmill.sources import NumpySource
    >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    ...     _ = file.write(b"a,b"), file.flush()
    ...     try:
    ...         NumpySource(file.name)[0]
    ...     except FormatError as error:
    ...         print(error.message)
    The file does not start like a NumPy file. Pass `.npy` or `.npz` files.
    """


class CorruptFileError(FileError, ValueError):
    """A file is truncated or damaged.

    >>> import tempfile
    >>> from gristmill.sources import JsonLinesSource
    >>> with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
    ...     _ = file.write(b'{"a": '), file.flush()
    ...     try:
    ...         JsonLinesSource(file.name)[0]
    ...     except CorruptFileError as error:
    ...         print(error.record)
    0
    """


class ChangedFileError(FileError):
    """A file has changed since it was opened or indexed.

    >>> import tempfile
    >>> from gristmill.sources import TextSource
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     source = TextSource(file.name)
    ...     _ = file.write(b"more"), file.flush()
    ...     try:
    ...         source[0]
    ...     except ChangedFileError as error:
    ...         print(str(error).partition(".")[0])
    The file has changed since this source was created
    """


class StoreError(FileError, ConnectionError):
    """A remote store did not return a file, even after retries."""


class FeedError(GristmillError, ValueError):
    """A batch cannot be transferred to the devices, or the processes disagree on it.

    >>> import gristmill
    >>> try:
    ...     next(iter(gristmill.feed(gristmill.load(["a", "b"], batch_size=2))))
    ... except FeedError as error:
    ...     print(str(error).partition(".")[0])
    batch is an array of <U1, which JAX does not support
    """


class StateError(GristmillError, ValueError):
    """A checkpoint does not fit the pipeline that it is restored into, or is damaged.

    >>> import gristmill
    >>> state = iter(gristmill.load(range(4))).get_state()
    >>> try:
    ...     iter(gristmill.load(range(9))).set_state(state)
    ... except StateError as error:
    ...     print(str(error).partition(".")[0])
    The state belongs to another source: range(0, 4) there, range(0, 9) here
    """


class UnknownIndexError(StateError, NotImplementedError):
    """The index of the next element is not known without counting, or cannot be set.

    >>> from gristmill import MapDataset
    >>> from gristmill.experimental import get_next_index
    >>> odd = MapDataset.range(4).to_iter_dataset().filter(lambda x: x % 2 == 1)
    >>> try:
    ...     get_next_index(iter(odd))
    ... except UnknownIndexError as error:
    ...     print(str(error).partition(".")[0])
    The number of elements that Filter <lambda> has yielded is not known without counting
    """


class NextIndexError(StateError, IndexError):
    """The index of the next element, of a state of Grain's, is not one of the dataset.

    >>> from gristmill import MapDataset
    >>> from gristmill.experimental import set_next_index
    >>> try:
    ...     set_next_index(iter(MapDataset.range(5).to_iter_dataset()), 99)
    ... except NextIndexError as error:
    ...     print(str(error).partition(".")[0])
    Checkpoint `next_index` 99 is out of range for dataset of length 5
    """


class ProvenanceError(GristmillError, ValueError):
    """The records that an element was made of cannot be determined.

    >>> import gristmill
    >>> try:
    ...     iter(gristmill.load([1, 2])).provenance()
    ... except ProvenanceError as error:
    ...     print(str(error).partition(":")[0])
    There is no last element
    """


class ClosedError(GristmillError, ValueError):
    """The iterator is closed.

    >>> import gristmill
    >>> with iter(gristmill.load([1, 2])) as iterator:
    ...     pass
    >>> try:
    ...     next(iterator)
    ... except ClosedError as error:
    ...     print(str(error).partition(".")[0])
    The iterator was closed
    """


class WorkerError(GristmillError, RuntimeError):
    """A worker process died, stopped responding or could not send an element.

    >>> import gristmill, os
    >>> loader = gristmill.load([1, 2], worker_count=1, transformations=[lambda x: os._exit(1)])
    >>> try:
    ...     next(iter(loader))
    ... except WorkerError as error:
    ...     print(str(error).partition(",")[0])
    Record 0 of the source (position 0 of the stream) killed its worker 3 times
    """


class UnsendableError(WorkerError):
    """An element cannot be sent from a worker to the process that requested it.

    >>> import gristmill, threading
    >>> lock = lambda record: threading.Lock()
    >>> try:
    ...     next(iter(gristmill.load([1, 2], worker_count=1, transformations=[lock])))
    ... except UnsendableError as error:
    ...     print(str(error).partition(".")[0])
    A worker cannot send an element: `element` is a _thread
    """


class MissingExtraError(GristmillError, ImportError):
    """An optional package is not installed."""


class GrainImportedError(GristmillError, ImportError):
    """Grain itself is imported, so gristmill cannot replace it."""


class GristmillWarning(UserWarning):
    """The pipeline works, but probably not as intended.

    To turn them into errors, in tests for example:

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", GristmillWarning)
    """
