"""Hypothesis strategies: any sensible `DataLoader` pipeline, as a value that prints well."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gristmill
from gristmill import (
    ArraySource,
    Batch,
    BatchOperation,
    DataLoader,
    Filter,
    FilterOperation,
    FlatMap,
    IndexSampler,
    Map,
    MapOperation,
    MapWithIndex,
    NoSharding,
    RandomMap,
    RandomMapOperation,
    RangeDataSource,
    ReadOptions,
    RecordMetadata,
    SequentialSampler,
    ShardOptions,
    SubsetSampler,
    WeightedSampler,
)
from tests.policies import EAGER, TuningPolicy, with_policy
from tests.properties.trees import change, items_of, total

INLINE = ReadOptions(num_threads=0)
AHEAD = ReadOptions()


# Sources: record i is made from i alone, whatever the source.


def _record(index: int) -> dict[str, Any]:
    return {
        "x": index,
        "v": np.array([index, 0.5], dtype=np.float32),
        "rest": (np.int16(index % 7), "ab" * (index % 3)),
    }


@dataclass(frozen=True)
class Getter:
    """A source that makes each record again."""

    num_records: int

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.num_records:
            raise IndexError(index)
        return _record(index)


@dataclass(frozen=True)
class ManyGetter(Getter):
    """A source that also yields many records in one call."""

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        return [_record(index) for index in indices]


def _columns(size: int) -> dict[str, Any]:
    return {
        "x": np.arange(size, dtype=np.int32),
        "v": np.arange(2 * size, dtype=np.float32).reshape(size, 2),
        "rest": (np.arange(size, dtype=np.int64) % 5,),
    }


SOURCES: dict[str, Any] = {
    "list of ints": lambda size: list(range(size)),
    "list of dicts": lambda size: [_record(index) for index in range(size)],
    "list of arrays": lambda size: list(np.arange(3 * size).reshape(size, 3)),
    "range": range,
    "array": lambda size: np.arange(size, dtype=np.uint16) * 3,
    "ArraySource": lambda size: ArraySource(_columns(size)),
    "ArraySource of one": lambda size: ArraySource(np.arange(4.0 * size).reshape(size, 2, 2)),
    "ArraySource of texts": lambda size: ArraySource(
        {"t": np.array(["a" * (index % 4) for index in range(size)]), "n": np.arange(size)}
    ),
    "RangeDataSource": lambda size: RangeDataSource(3, 3 + 2 * size, 2),
    "__getitem__": Getter,
    "__getitems__": ManyGetter,
}


# Samplers of the user's own.


@dataclass(frozen=True)
class OwnSampler:
    """Records out of order, some of them twice, each with its generator; it has no length."""

    num_records: int
    num_steps: int

    def __getitem__(self, index: int) -> RecordMetadata:
        if not 0 <= index < self.num_steps:
            raise IndexError(index)
        rng = np.random.Generator(np.random.Philox(key=1000 + index))
        return RecordMetadata(index, (index * 7 + 3) % self.num_records, rng)


@dataclass(frozen=True)
class OwnSizedSampler(OwnSampler):
    """The same with a length."""

    def __len__(self) -> int:
        return self.num_steps


# Operations: each takes any element, batches included.


@dataclass(frozen=True)
class Plus(Map):
    by: int

    def map(self, element: Any) -> Any:
        return change(lambda leaf: leaf + self.by, element)


@dataclass(frozen=True)
class PlusColumns(Plus):
    def map_batch(self, columns: Any) -> Any:
        return change(lambda leaf: leaf + self.by, columns)


@dataclass(frozen=True)
class AsFloat(Map):
    def map(self, element: Any) -> Any:
        return change(lambda leaf: np.asarray(leaf).astype(np.float32), element)


@dataclass(frozen=True)
class Halve(Map):
    """Odd and even ones get other types, which a batch has to unite."""

    def map(self, element: Any) -> Any:
        return element if total(element) % 2 else change(lambda leaf: leaf / 2, element)


def negate(element: Any) -> Any:
    """Do what a plain function among the operations would."""
    return change(lambda leaf: -np.asarray(leaf).astype(np.int64), element)


@dataclass(frozen=True)
class Picky(Map):
    """Fails for some elements."""

    modulus: int

    def map(self, element: Any) -> Any:
        if total(element) % self.modulus == 1:
            raise ValueError("picky")
        return element


@dataclass(frozen=True)
class PlusIndex(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return change(lambda leaf: leaf + index, element)


@dataclass(frozen=True)
class Jitter(RandomMap):
    draws: int

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        shift = int(sum(rng.integers(0, 50, size=self.draws)))
        return change(lambda leaf: leaf + shift, element)


@dataclass(frozen=True)
class KeepSome(Filter):
    modulus: int

    def filter(self, element: Any) -> bool:
        return total(element) % self.modulus != 0


@dataclass(frozen=True)
class Split(FlatMap):
    max_fan_out: int

    def flat_map(self, element: Any) -> list[Any]:
        fan_out = total(element) % (self.max_fan_out + 1)
        return [change(lambda leaf, by=by: leaf + by, element) for by in range(fan_out)]


@dataclass(frozen=True)
class Unbatch(FlatMap):
    max_fan_out: int = 1000

    def flat_map(self, element: Any) -> list[Any]:
        return items_of(element)


def summary(rows: Sequence[Any]) -> Any:
    """Make a batch out of the first, the last and the number of elements."""
    return {"count": len(rows), "sums": np.array([total(rows[0]), total(rows[-1])])}


BATCHES = st.builds(
    Batch,
    batch_size=st.integers(1, 7),
    drop_remainder=st.booleans(),
    batch_fn=st.sampled_from([None, None, None, summary]),
)
ONE_TO_ONE = st.one_of(
    st.builds(Plus, st.integers(0, 3)),
    st.builds(PlusColumns, st.integers(0, 3)),
    st.builds(AsFloat),
    st.builds(Halve),
    st.just(negate),
    st.builds(MapOperation, st.just(negate)),
    st.builds(PlusIndex),
)
RANDOM = st.one_of(
    st.builds(Jitter, st.integers(1, 3)),
    st.builds(RandomMapOperation, st.builds(lambda draws: Jitter(draws).random_map, st.just(2))),
)
LEAVES_OUT = st.one_of(
    st.builds(KeepSome, st.integers(2, 5)),
    st.builds(FilterOperation, st.just(KeepSome(3).filter)),
)
SPLITS = st.one_of(st.builds(Split, st.integers(0, 2)), st.builds(Unbatch))
OLD_BATCHES = st.builds(BatchOperation, batch_size=st.integers(1, 5))


@dataclass(frozen=True)
class Pipeline:
    """All that determines a stream."""

    source_name: str
    num_records: int
    sampler: Any
    shard: ShardOptions | None
    operations: list[Any] = field(default_factory=list)

    def source(self) -> Any:
        return SOURCES[self.source_name](self.num_records)

    def loader(
        self,
        read_options: ReadOptions = INLINE,
        source: Any = None,
        policy: TuningPolicy = EAGER,
    ) -> DataLoader:
        with warnings.catch_warnings():  # some of them yield nothing at all, and are warned of
            warnings.simplefilter("ignore", gristmill.errors.GristmillWarning)
            loader = DataLoader(
                data_source=self.source() if source is None else source,
                sampler=self.sampler,
                shard_options=self.shard,
                operations=self.operations,
                read_options=read_options,
            )
        return with_policy(loader, policy)

    @property
    def draws_after_a_split(self) -> bool:
        """Whether pieces of a record draw: how their generators come about is not laid down."""
        kinds = [
            "split"
            if isinstance(operation, FlatMap)
            else "draw"
            if isinstance(operation, RandomMap | RandomMapOperation)
            else ""
            for operation in self.operations
        ]
        return "split" in kinds and "draw" in kinds[kinds.index("split") :]


@st.composite
def shards(draw: st.DrawFn) -> ShardOptions:
    count = draw(st.integers(1, 4))
    return ShardOptions(draw(st.integers(0, count - 1)), count, draw(st.booleans()))


@st.composite
def samplers(draw: st.DrawFn, num_records: int) -> Any:
    kinds = ["index", "index", "sequential", "own", "own sized", "subset", "weighted"]
    kind = draw(st.sampled_from(kinds))
    used = draw(st.integers(1, num_records))
    shard = draw(st.one_of(st.just(NoSharding()), shards()))
    seed = draw(st.integers(0, 2**32 - 1))
    match kind:
        case "index":
            return IndexSampler(
                used, shard, draw(st.booleans()), draw(st.integers(1, 3)), seed=seed
            )
        case "sequential":
            return SequentialSampler(used, shard, seed)
        case "subset":
            listed = draw(st.lists(st.integers(0, num_records - 1), min_size=1, max_size=20))
            epochs, shuffle = draw(st.integers(1, 3)), draw(st.booleans())
            return SubsetSampler(
                listed, shuffle=shuffle, num_epochs=epochs, seed=seed, shard_options=shard
            )
        case "weighted":
            replacement, epochs = draw(st.booleans()), draw(st.integers(1, 3))
            weights = [(1 + index % 3) * (index < used) for index in range(num_records)]
            return WeightedSampler(
                weights, replacement=replacement, num_epochs=epochs, seed=seed, shard_options=shard
            )
        case "own":
            return OwnSampler(num_records, draw(st.integers(0, 50)))
        case _:
            return OwnSizedSampler(num_records, draw(st.integers(0, 50)))


@st.composite
def pipelines(draw: st.DrawFn, *, fails: bool = True) -> Pipeline:
    """Return any pipeline; with `fails`, some end in a user's error or that of a ragged batch."""
    num_records = draw(st.integers(1, 30))
    sampler = draw(samplers(num_records))
    own = getattr(sampler, "shard_options", NoSharding())
    shard = None if own.shard_count > 1 else draw(st.one_of(st.none(), shards()))
    steps = [ONE_TO_ONE, LEAVES_OUT, SPLITS, BATCHES, BATCHES, OLD_BATCHES]
    if fails:
        steps.append(st.builds(Picky, st.integers(3, 20)))
    operations: list[Any] = []
    for _ in range(draw(st.integers(0, 6))):
        has_split = any(isinstance(operation, FlatMap) for operation in operations)
        # A user's sampler has one generator for a record: its pieces cannot share it.
        draws = not (has_split and isinstance(sampler, OwnSampler))
        operations.append(draw(st.one_of(*steps, *([RANDOM] if draws else []))))
    return Pipeline(draw(st.sampled_from(list(SOURCES))), num_records, sampler, shard, operations)
