"""Every error gristmill raises on its own account.

GristmillError
├── PlanError (ValueError)            the pipeline, as written, cannot work
│   ├── PlanTypeError (TypeError)     an argument is of a type that cannot work
│   └── SpecError (NotImplementedError)  what a step gives is not known before it runs
├── BatchError (ValueError)           these records do not fit into one batch
├── FilterError (ValueError)          a filter left out more elements than the options allow
├── SourceError (RuntimeError)        a data source broke its promise
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
