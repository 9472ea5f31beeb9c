"""Records that are skipped as a file or a module is missing, perhaps only where they were read.

A bad record is skipped wherever it is computed. A missing file may be missing on one node only, and
then the stream would depend on which node computes what. So such a block is computed again: on each
other node that has actors, and at last in the process of the program. The first result in which
nothing is missing counts, and else that of the program, as without Ray.
"""

from collections.abc import Iterator

from gristmill._engine.blocks.block import BlockResult, SkipEvent
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.open_job import OpenJob

_Missing = FileNotFoundError | ModuleNotFoundError


def missing_skips(result: BlockResult) -> list[SkipEvent]:
    """Return the records that were skipped because of what may be missing on this machine only."""
    return [skip for skip in result.skips if find_missing(skip.error) is not None]


def find_missing(error: BaseException | None) -> BaseException | None:
    """Return the error of Python for a missing file or module that is the cause of an error.

    >>> find_missing(ValueError("not a JPEG"))
    >>> find_missing(FileNotFoundError(2, "No such file"))
    FileNotFoundError(2, 'No such file')
    """
    return next((one for one in _causes(error) if isinstance(one, _Missing)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()  # users may have made a circle of them
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


def computed_here(job: Job, positions: range, remote: BlockResult) -> BlockResult:
    """Return what this process computes, in place of a block for which all nodes lack something.

    Args:
        job: The plan.
        positions: The positions of the block.
        remote: What a node has computed. It counts if this process lacks more.
    """
    own = OpenJob(job).read(positions)
    lacked = {skip.cursor for skip in missing_skips(remote)}
    lacks_more = any(skip.cursor not in lacked for skip in missing_skips(own))
    return remote if own.error is not None or lacks_more else own
