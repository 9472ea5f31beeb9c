"""Records that are skipped as a file or a module is missing, perhaps only where they were read.

A bad record is skipped wherever it is computed. A missing file may be missing on one node only, and
then the stream would depend on which node computes what. So such a block is computed again: on each
other node that has actors, and at last in the process of the program. The first result in which
nothing is missing counts, and else that of the program, as without Ray.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

from gristmill._engine.blocks.block import BlockResult, SkipEvent
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.open_job import OpenJob
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._engine.executors.ray.worker import RayWorker

_logger = logging.getLogger("gristmill")

_Missing = FileNotFoundError | ModuleNotFoundError


class Arrival(NamedTuple):
    """A block that an actor has computed."""

    worker: RayWorker
    number: int
    """The number of the task."""
    encoded: bytes
    """Its header, as it was sent."""
    header: BlockHeader


@final
class LackingNodes:
    """Notes which nodes lack something for a task."""

    def __init__(self) -> None:
        self._nodes: defaultdict[int, set[str]] = defaultdict(set)
        self._warned: set[str] = set()
        self.parked: list[Arrival] = []
        """What has arrived and is not used, as an actor on another node is about to start."""

    def find_other(self, arrival: Arrival, ready: Sequence[RayWorker]) -> RayWorker | None:
        """Return an actor on a node that has not tried a block, if one is ready."""
        tried = self._nodes[arrival.number]
        tried.add(arrival.worker.node_id)
        self._warn(arrival.worker.node, arrival.header.missing)
        others = [worker for worker in ready if worker.node_id not in tried]
        return min(others, key=lambda worker: worker.num_calls, default=None)

    def take_parked(self) -> list[Arrival]:
        """Return what has arrived and was not used yet, to try again."""
        parked, self.parked = self.parked, []
        return parked

    def forget(self, task: int) -> None:
        """Forget a task, which is done."""
        self._nodes.pop(task, None)

    def _warn(self, node: str, missing: str) -> None:
        if node not in self._warned:
            self._warned.add(node)
            _logger.warning(
                "On node %s of the Ray cluster, a record could not be computed: %s. It is computed "
                "again elsewhere, as this may be missing there only.",
                node,
                missing,
            )


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
