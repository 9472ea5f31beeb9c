"""Hypothesis strategies: any pipeline of operations over any sampler, as a function of the API.

An element is `{"x": int or array of them, "v": float32 array}` at whatever batch depth, so that
every operation can follow every other one.
"""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.compat.side_by_side import (
    MakeOperation,
    batching,
    filtering,
    flat_mapping,
    make_loader,
    mapping,
    older,
    random_mapping,
)


class Records:
    """A source whose record `i` is made from `i`; each read yields a new object."""

    def __init__(self, num_records: int):
        self._num_records = num_records

    def __len__(self) -> int:
        return self._num_records

    def __getitem__(self, index: Any) -> Any:
        return {"x": int(index), "v": np.array([index, 0.5], dtype=np.float32)}

    def __repr__(self) -> str:
        return f"Records({self._num_records})"


def _move(element: Any, by: Any) -> Any:
    return {"x": element["x"] * 2 + 1, "v": element["v"] - np.float32(by)}


def _jitter(element: Any, rng: np.random.Generator) -> Any:
    shift = rng.integers(1000, dtype=np.int64)
    noise = rng.random(element["v"].shape, dtype=np.float32)
    return {"x": element["x"] + shift, "v": element["v"] + noise}


def _is_kept(element: Any) -> bool:
    return int(np.sum(element["x"])) % 3 != 0


def _split(element: Any) -> list[Any]:
    fan_out = int(np.sum(element["x"])) % 4
    return [{"x": element["x"] + i, "v": element["v"] * i} for i in range(fan_out)]


ONE_TO_ONE = {
    "map": mapping(lambda element: _move(element, 1)),
    "older map": older("MapOperation", lambda element: _move(element, 2)),
    "filter": filtering(_is_kept),
    "older filter": older("FilterOperation", _is_kept),
}
RANDOM = {
    "random map": random_mapping(_jitter),
    "older random map": older("RandomMapOperation", _jitter),
}
FLAT = {"flat map": flat_mapping(_split, max_fan_out=3)}


@dataclasses.dataclass(frozen=True)
class Chain:
    """A pipeline in words, which hypothesis can print, and as a loader."""

    num_records: int
    sampling: dict[str, Any]
    shard: tuple[int, int]
    shard_in_sampler: bool
    steps: tuple[str | tuple[str, int, bool], ...]

    def __call__(self, api: Any) -> Any:
        sampling, sharding = dict(self.sampling), {}
        if self.shard != (0, 1):
            options = api.ShardOptions(*self.shard, drop_remainder=True)
            (sampling if self.shard_in_sampler else sharding)["shard_options"] = options
        sampler = api.IndexSampler(self.num_records, **sampling)
        operations = [_operation(step) for step in self.steps]
        return make_loader(api, Records(self.num_records), *operations, sampler=sampler, **sharding)


def _operation(step: str | tuple[str, int, bool]) -> MakeOperation:
    if isinstance(step, str):
        return (ONE_TO_ONE | RANDOM | FLAT)[step]
    name, batch_size, drop_remainder = step
    if name == "older batch":
        return older("BatchOperation", batch_size, drop_remainder=drop_remainder)
    return batching(batch_size, drop_remainder=drop_remainder)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    num_records = draw(st.integers(1, 40))
    shard_count = draw(st.integers(1, min(3, num_records)))
    num_batches = draw(st.integers(0, 2))
    names = draw(st.lists(st.sampled_from([*ONE_TO_ONE, *RANDOM, *FLAT]), max_size=5))
    # In Grain there is no generator after a flat map; ours are compared in test_loader_stream.
    if "flat map" in names:
        first = names.index("flat map")
        names = [n for i, n in enumerate(names) if i < first or n not in RANDOM]
    steps: list[Any] = list(names)
    for nth in range(num_batches):
        # A short batch cannot be stacked with whole ones: only the last batch may be short.
        is_last = nth == num_batches - 1
        drop_remainder = draw(st.booleans()) if is_last else True
        name = draw(st.sampled_from(["batch", "older batch"]))
        after = max((i + 1 for i, step in enumerate(steps) if isinstance(step, tuple)), default=0)
        at = draw(st.integers(after, len(steps)))
        steps.insert(at, (name, draw(st.integers(1, 6)), drop_remainder))
    return Chain(
        num_records=num_records,
        sampling={
            "shuffle": draw(st.booleans()),
            "num_epochs": draw(st.integers(1, 3)),
            "seed": draw(st.sampled_from([0, 1, 42, 2**31, 2**32 - 1])),
        },
        shard=(draw(st.integers(0, shard_count - 1)), shard_count),
        shard_in_sampler=draw(st.booleans()),
        steps=tuple(steps),
    )
