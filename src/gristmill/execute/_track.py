"""Where the elements of a block came from, and where to go on after each.

A *cursor* is a place between two elements of the stream: the position of a sampled record and, for
each flat map of the plan, how many pieces of it were already given. Cursors grow along the stream
(compared as tuples) and do not depend on how it was cut into blocks. Reading on from the cursor
after an element gives the next one.
"""

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from gristmill.types import Indices

Cursor: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Track:
    """Cursors of the elements of a block, one row each: position first, then flat maps bottom up.

    `starts` is where reading on would give the element first, `ends` the same for the one after
    it. `origins` tells the record, or piece of one, that the element is made of: of a batch, the
    last; the random generator hangs on it.
    """

    origins: Indices
    starts: Indices
    ends: Indices

    @staticmethod
    def of_records(positions: Indices, *, num_flat_maps: int) -> "Track":
        """Give the track of sampled records."""
        starts = np.zeros((len(positions), 1 + num_flat_maps), dtype=np.int64)
        starts[:, 0] = positions
        ends = starts.copy()
        ends[:, 0] += 1
        return Track(starts, starts, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, part: slice | Indices) -> "Track":
        return Track(self.origins[part], self.starts[part], self.ends[part])

    def join(self, firsts: Indices, lasts: Indices) -> "Track":
        """Give the track of elements that each unite those from a first to a last."""
        return Track(self.origins[lasts], self.starts[firsts], self.ends[lasts])

    def split(self, counts: Indices, *, level: int) -> "Track":
        """Give the track of the pieces when flat map `level` makes `counts` of each element."""
        parents = np.repeat(np.arange(len(counts)), counts)
        pieces = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts, origins = self.starts[parents], self.origins[parents]
        ends = starts.copy()
        starts[:, level] = pieces
        origins[:, level] = ends[:, level] = pieces + 1
        is_last = pieces == counts[parents] - 1
        ends[is_last] = self.ends[parents[is_last]]
        return Track(origins, starts, ends)

    def after(self, row: int) -> Cursor:
        """Give the cursor after an element."""
        return tuple(self.ends[row].tolist())

    def num_until(self, cursor: Cursor) -> int:
        """Count the elements that lie before a cursor."""
        ends = self.ends.tolist()
        return sum(1 for end in ends if tuple(end) <= cursor)

    @staticmethod
    def concatenate(tracks: "list[Track]") -> "Track":
        """Give one track for blocks that follow each other."""
        return Track(
            np.concatenate([track.origins for track in tracks]),
            np.concatenate([track.starts for track in tracks]),
            np.concatenate([track.ends for track in tracks]),
        )
