"""How a block result is sent from a worker: as a pickle, and the memory of its larger arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pickle import PickleBuffer
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.columns import Columns
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.access.cut import Cut
from gristmill._engine.blocks.block import Block, BlockResult, FilterCounts, Generators, SkipEvent
from gristmill._engine.blocks.error_notes import add_context
from gristmill._engine.blocks.lineage import Lineage
from gristmill._engine.executors.serialization.remote_error import dump_error, load_error
from gristmill._engine.executors.serialization.serialize import Sender, load
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.step_time import StepTime
from gristmill._metrics.timeline import Track, Work
from gristmill.types import Cursor, Element


class Message:
    """What can be sent between the parent and a worker."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # As the class and its fields. By default, a dataclass with slots is pickled as an empty
        # object and a state, which takes 1.3 times as long to dump and 1.6 times to load.
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


@final
@dataclass(frozen=True, slots=True)
class BlockContent(Message):
    """The parts of a block result that may contain objects of the user."""

    data: list[Element] | Columns
    lineage: Lineage
    generators: Generators | None
    """`None` if no step above the cut draws random numbers."""
    skips: Sequence["SentSkip"]
    filter_counts: tuple[FilterCounts, ...]
    has_waited: bool


@final
@dataclass(frozen=True, slots=True)
class SentSkip(Message):
    """A `SkipEvent` whose error is serialized."""

    cursor: Cursor
    start: Cursor
    record: SkippedRecord
    error: bytes
    """See `dump_error`."""


class EncodedBlock(NamedTuple):
    """A block result that can be sent."""

    content: bytes
    """A pickled `BlockContent`."""
    buffers: list[PickleBuffer]
    """The memory of its larger arrays."""
    error: bytes | None
    """The error after the last element, if any. See `dump_error`."""


class BlockTimes(NamedTuple):
    """What a block took in a worker."""

    step_times: tuple[StepTime, ...] = ()
    """See `BlockResult`."""
    busy_s: float = 0.0
    """See `BlockResult`."""
    transfer_s: float = 0.0
    """See `BlockResult`."""
    began_at: float = 0.0
    """When the worker began, by the clock of its machine."""
    worker: str = ""
    """The name of the worker."""
    process: int = 0
    """The number of its process."""
    work: tuple[Work, ...] = ()
    """What its threads did, if there were several."""

    @property
    def ended_at(self) -> float:
        """When the worker had the result, by the clock of its machine."""
        return self.began_at + self.busy_s

    def shifted(self, offset_s: float) -> "BlockTimes":
        """Return the same times by a clock that is ahead by `offset_s`."""
        work = tuple([one._replace(began_at=one.began_at + offset_s) for one in self.work])
        return self._replace(began_at=self.began_at + offset_s, work=work)

    def in_parent(self) -> tuple[Work, ...]:
        """Return what the worker did, as the parent records it."""
        if not self.worker:  # it has failed
            return ()
        main = Track(self.worker, "", self.process)
        if not self.work:
            return (Work(main, self.began_at, self.step_times, transfer_s=self.transfer_s),)
        copied_at = self.ended_at - self.transfer_s
        return (
            *(
                one._replace(track=one.track.of_worker(self.worker, self.process))
                for one in self.work
            ),
            Work(main, copied_at, (), transfer_s=self.transfer_s),
        )


@final
class BlockEncoder:
    """Encodes block results in a worker.

    Args:
        policy: Which arrays stay in the pickle.
        name: The name of the worker in the tracebacks of errors, such as `worker 1`.
    """

    def __init__(self, policy: TuningPolicy, name: str) -> None:
        self._sender = Sender(policy)
        self._where = f"Traceback in {name}"

    def encode(self, cut: Cut, result: BlockResult) -> EncodedBlock:
        """Encode a result; if an element cannot be sent, the elements before it and an error."""
        error = result.error
        skips = [
            SentSkip(skip.cursor, skip.start, skip.record, self.dump_error(skip.error))
            for skip in result.skips
        ]
        try:
            content, buffers = self._dump(cut, result, skips)
        except Exception:
            block, error = self._sendable_part(cut, result.block)
            content, buffers = self._dump(cut, replace(result, block=block), skips)
        return EncodedBlock(content, buffers, None if error is None else self.dump_error(error))

    def encode_failure(self, cut: Cut, error: BaseException) -> EncodedBlock:
        """Encode an error without elements."""
        content, _ = self._dump(cut, BlockResult(Block.empty()), [])
        return EncodedBlock(content, [], self.dump_error(error))

    def dump_error(self, error: BaseException) -> bytes:
        """Encode an error."""
        return dump_error(error, where=self._where)

    def _dump(
        self, cut: Cut, result: BlockResult, skips: list[SentSkip]
    ) -> tuple[bytes, list[PickleBuffer]]:
        block = result.block
        generators = block.generators if cut.draws_above else None
        return self._sender.dump(
            BlockContent(
                block.data,
                block.lineage,
                generators,
                skips,
                result.filter_counts,
                result.has_waited,
            )
        )

    def _sendable_part(self, cut: Cut, block: Block) -> tuple[Block, BaseException]:
        """Return the elements before the one that cannot be sent, and the error that names it."""
        for row, element in enumerate(block.rows()):
            try:
                self._sender.dump(element)
            except Exception as error:
                return block[:row], add_context(error, cut.base, block.lineage, row)
        raise AssertionError("every element can be sent, but not all of them together")


def decode_block(
    content: bytes | NDArray[np.uint8],
    buffers: Iterable[NDArray[np.uint8]],
    error: bytes | None,
    times: BlockTimes,
) -> BlockResult:
    """Return the block result that was encoded; its arrays view the buffers."""
    loaded: BlockContent = load(content, buffers)
    return BlockResult(
        Block(loaded.data, loaded.lineage, loaded.generators),
        None if error is None else load_error(error),
        skips=tuple(map(_load_skip, loaded.skips)),
        step_times=times.step_times,
        filter_counts=loaded.filter_counts,
        has_waited=loaded.has_waited,
        busy_s=times.busy_s,
        transfer_s=times.transfer_s,
        work=times.in_parent(),
    )


def _load_skip(skip: SentSkip) -> SkipEvent:
    error = load_error(skip.error)
    assert isinstance(error, Exception)
    return SkipEvent(skip.cursor, skip.start, skip.record, error)
