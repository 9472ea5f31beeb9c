"""The origin of a record in a stream, and the origins of all rows of an element."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._base.format_numbers import count_of
from gristmill._base.seed import indexed_states
from gristmill._data.sources.record_location import RecordLocation


@final
@dataclass(frozen=True, kw_only=True)
class RandomDraw:
    """The random generator that a random map of a dataset used for an element.

    >>> from gristmill import MapDataset
    >>> def jitter(element, rng):
    ...     return element + rng.random()
    >>> elements = iter(MapDataset.range(5).seed(7).random_map(jitter).to_iter_dataset())
    >>> _, second = next(elements), next(elements)
    >>> (draw,) = elements.provenance().records[0].draws
    >>> draw
    RandomDraw(step='RandomMap jitter', seed=369571992, index=1)
    >>> jitter(1, draw.generator()) == second
    True
    """

    step: str
    """The random map."""
    seed: int
    """The seed of the random map."""
    index: int
    """The index of the element, the word of Philox's counter that distinguishes elements."""

    def generator(self) -> np.random.Generator:
        """Return a new generator in the state in which the random map received its own."""
        (state,) = indexed_states(self.seed, [self.index])
        made = np.random.Philox()
        made.state = state
        return np.random.Generator(made)


@final
@dataclass(frozen=True, kw_only=True)
class RecordOrigin:
    """Where a record of a stream comes from.

    >>> from gristmill import load
    >>> elements = iter(load(range(100, 110), shuffle=True, seed=3))
    >>> next(elements)
    104
    >>> origin = elements.provenance().records[0]
    >>> origin.index, origin.epoch, origin.position
    (4, 0, 0)
    """

    source: str
    """The source, as states describe it."""
    source_number: int
    """The number of the source in the pipeline, starting at 0: which one of a mixture."""
    index: int
    """The index of the record in its source: `source[index]` reads it."""
    epoch: int | None
    """The pass over the source; `None` if the sampler has no known epochs."""
    position: int | None
    """The position of the record in the stream of a loader, counted over all shards. For a dataset,
    the position of the element that the record is part of."""
    seed: int | None = None
    """The key of the record's random generator in a loader: `Generator(Philox(key=seed))`."""
    outputs: tuple[int, ...] = ()
    """For each flat map, bottom up, the number of the output among those of one element."""
    draws: tuple[RandomDraw, ...] = ()
    """The generators that random maps of a dataset used, bottom up."""
    location: RecordLocation | None = None
    """The file of the record, if the source knows it."""

    def __str__(self) -> str:
        words = [f"record {self.index} of {self.source}"]
        if self.source_number:
            words.append(f"source {self.source_number}")
        for name in ("epoch", "position", "seed"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name} {value}")
        words += [f"output {output} of a flat map" for output in self.outputs]
        words += [f"{draw.step} drew with ({draw.seed}, {draw.index})" for draw in self.draws]
        if self.location is not None:
            at, file = self.location, self.location.file
            byte = "" if at.offset is None else f", byte {at.offset}"
            words.append(f"record {at.index} of the file {file}{byte}")
        return ", ".join(words)


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Provenance:
    """The records that an element was made of.

    >>> from gristmill import load
    >>> batches = iter(load(range(100, 110), shuffle=True, seed=3, batch_size=2))
    >>> next(batches)
    array([104, 107])
    >>> [origin.index for origin in batches.provenance().records]
    [4, 7]
    """

    rows: tuple[tuple[RecordOrigin, ...], ...]
    """For each row of a batch, the records in it, in order: one, or several if records were packed
    or zipped. Other elements have one row."""

    @property
    def records(self) -> list[RecordOrigin]:
        """The records of all rows."""
        return [origin for row in self.rows for origin in row]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        num_records, num_rows = len(self.records), len(self.rows)
        return f"<Provenance: {count_of(num_records, 'record')} in {count_of(num_rows, 'row')}>"

    def _lines(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            for segment, origin in enumerate(row):
                within = f".{segment}" if len(row) > 1 else ""
                yield f"row {number}{within}: {origin}"
            if not row:
                yield f"row {number}: no record"
