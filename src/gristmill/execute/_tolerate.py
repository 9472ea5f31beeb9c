"""Leave out the elements on which a step raises, and say which they were."""

from collections.abc import Callable

from gristmill.checkpoint import SkippedRecord
from gristmill.errors import PlanError
from gristmill.execute._blame import record_key, step_name
from gristmill.execute._block import Block, concatenate
from gristmill.execute._outcome import Outcome, Skip
from gristmill.execute._track import DenseTrack, Track
from gristmill.plan import Node


def tolerant_step(node: Node, run: Callable[[Block], Outcome]) -> Callable[[Block], Outcome]:
    """Give a function that runs a step on a block, and again on what comes after a bad element."""

    def run_on(block: Block) -> Outcome:
        made = run(block)
        if not _is_bad_record(made.error):
            return made
        parts, skips, seen, done = [made.block], list[Skip](), made.seen, 0
        while _is_bad_record(made.error):
            skips.append(_skip(node, block.track, made))
            done += made.row + 1
            block = block[made.row + 1 :]
            made = run(block) if len(block) else Outcome(Block.empty())
            parts.append(made.block)
            seen += made.seen
        return Outcome(_joined(parts), made.error, done + made.row, tuple(skips), seen=seen)

    return run_on


def tolerant_reader(
    node: Node, read: Callable[[range], Outcome], *, num_flat_maps: int
) -> Callable[[range], Outcome]:
    """Give a function that reads a range of records without the bad ones."""

    def read_on(positions: range) -> Outcome:
        made = read(positions)
        if not _is_bad_record(made.error):
            return made
        parts, skips = [made.block], list[Skip]()
        while _is_bad_record(made.error):
            track = DenseTrack.of_records(positions, num_flat_maps=num_flat_maps)
            skips.append(_skip(node, track, made))
            positions = positions[made.row + 1 :]
            made = read(positions) if positions else Outcome(Block.empty())
            parts.append(made.block)
        return Outcome(_joined(parts), made.error, made.row, tuple(skips))

    return read_on


def _is_bad_record(error: BaseException | None) -> bool:
    """Tell what is the record's fault from what would be the same with any other."""
    return isinstance(error, Exception) and not isinstance(error, PlanError | MemoryError)


def _skip(node: Node, track: Track, made: Outcome) -> Skip:
    position = track.position(made.row)
    error = made.error
    assert isinstance(error, Exception)
    record = SkippedRecord(
        position=position,
        record=record_key(node, position),
        step=step_name(node),
        error=_told(error),
    )
    # Its frames hold the whole block in memory.
    return Skip(track.after(made.row), record, error.with_traceback(None))


def _told(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _joined(parts: list[Block]) -> Block:
    filled = [part for part in parts if len(part)]
    return concatenate(filled) if filled else Block.empty()
