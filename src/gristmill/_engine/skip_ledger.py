"""The bad records that a stream has skipped, and the budget for them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.skip_log import MAX_ERROR_SHOWN, SkipLog
from gristmill._metrics.stats import MAX_RECENT_SKIPS, RecentSkip
from gristmill.types import Cursor

LedgerEntry = tuple[Cursor, SkippedRecord]
"""The cursor after a skipped record, and the record."""


@final
class SkipLedger:
    """The skipped records of a stream in order, at most `budget` of them."""

    def __init__(self, budget: int, log: SkipLog, entries: Iterable[LedgerEntry] = ()) -> None:
        """Continue a ledger from the entries of a state, and log what is added."""
        self._budget = budget
        self._log = log
        self._entries = list(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def records(self) -> list[SkippedRecord]:
        """The skipped records."""
        return [record for _, record in self._entries]

    @property
    def recent(self) -> tuple[RecentSkip, ...]:
        """The last skipped records, for views."""
        return tuple(
            [
                RecentSkip(one.step, one.error[:MAX_ERROR_SHOWN], one.record, one.position)
                for _, one in self._entries[-MAX_RECENT_SKIPS:]
            ]
        )

    def entries_until(self, cursor: Cursor) -> tuple[LedgerEntry, ...]:
        """Return the entries of the records before a cursor."""
        return tuple(entry for entry in self._entries if entry[0] <= cursor)

    def add(self, result: BlockResult) -> BlockResult:
        """Add the records that were skipped in a block.

        Returns:
            The result; if a record exceeds the budget, cut before that record, with its error.
        """
        known = self._entries[-1][0] if self._entries else None
        for skip in sorted(result.skips, key=lambda skip: skip.cursor):
            if known is not None and skip.cursor <= known:
                continue  # added before: after a seek, records are read again
            if len(self._entries) >= self._budget:
                add_note_once(
                    skip.error,
                    f"{self._budget} bad records were skipped before it, which is the `budget` of "
                    "`SkipErrors`.",
                )
                block = result.block
                num_before = block.lineage.num_until(skip.start) if len(block) else 0
                return replace(result, block=block[:num_before], error=skip.error)
            self._entries.append((skip.cursor, skip.record))
            self._log.add(skip.record)
        return result
