"""One program under Grain, the oracle, and under gristmill: the same elements, the same refusals.

A program is a function of the API module. Random chains are tuples of words and numbers, which
hypothesis prints, and which `build` turns into a dataset of either side.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import grain
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import gristmill

Api = Any
oracle: Api = grain
ours: Api = gristmill
SIDES = (oracle, ours)

# The examples are the same on every run: a red build is one anybody can repeat.
STEADY = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def assert_same(actual: Any, expected: Any, at: str = "element") -> None:
    """Equal in the type of every container and leaf, in dtype, shape and bytes."""
    assert type(actual) is type(expected), f"{at}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype, at
        assert actual.shape == expected.shape, at
        assert actual.tobytes() == expected.tobytes(), f"{at}: {actual!r} is not {expected!r}"
    elif isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), at
        for key in expected:
            assert_same(actual[key], expected[key], f"{at}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), f"{at}: {len(actual)} items, not {len(expected)}"
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{at}[{number}]")
    else:
        assert actual == expected, f"{at}: {actual!r} is not {expected!r}"


REFUSED = "refused"
REFUSED_BY_DESIGN = "refused by gristmill, where Grain makes a batch with None or leaves it out"


def refusal(error: Exception) -> str:
    """Return how an error counts: `docs/differences.md` lists batches with absent elements."""
    return REFUSED_BY_DESIGN if "the batch is absent (None)" in str(error) else REFUSED


def attempt(make: Callable[[], Any]) -> Any:
    """Return what comes of it, or that it is refused."""
    try:
        return make()
    except Exception as error:  # of an empty dataset, Grain divides by its length
        return refusal(error)


def take(iterator: Any, most: int = 10_000) -> list[Any]:
    """Take elements up to the end, to an error, which is then the last of them, or to a limit."""
    taken: list[Any] = []
    for _ in range(most):
        try:
            taken.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            taken.append(refusal(error))
            break
    return taken


def prefetching(dataset: Any) -> Any:
    """Return an iterator over one of our datasets with a background thread from the start on."""
    iterator = iter(dataset)
    iterator.start_prefetch()
    return iterator


def assert_same_stream(program: Callable[[Api], Any], most: int = 10_000) -> None:
    """Iterate under both, and compare; under gristmill also with a background thread."""
    made = [attempt(lambda side=side: program(side)) for side in SIDES]
    if made[0] is REFUSED or made[1] is REFUSED:
        assert made[0] is made[1] is REFUSED, made
        return
    theirs = take(iter(made[0]), most)
    for iterator in (iter(made[1]), prefetching(made[1])):
        own = take(iterator, most)
        if own and own[-1] is REFUSED_BY_DESIGN:
            assert_same(own[:-1], theirs[: len(own) - 1], "stream")
        else:
            assert_same(own, theirs, "stream")


def assert_same_access(program: Callable[[Api], Any], *, most: int = 60) -> None:
    """Read at every index of two epochs and some, and compare; and the lengths."""
    made = [attempt(lambda side=side: program(side)) for side in SIDES]
    if made[0] is REFUSED or made[1] is REFUSED:
        assert made[0] is made[1] is REFUSED, made
        return
    theirs, own = made
    assert len(own) == len(theirs)
    for index in range(min(2 * len(own) + 3, most) if len(own) else 0):
        one = attempt(lambda index=index: own[index])
        if one is REFUSED_BY_DESIGN:
            continue
        assert_same(one, attempt(lambda index=index: theirs[index]), f"ds[{index}]")


def assert_resumes(dataset: Any, most: int = 10_000) -> None:
    """At every step, the state as JSON brings a new iterator to the rest of the stream.

    The first iterator has a background thread, and every second one of the others.
    """
    iterator = prefetching(dataset)
    states = [json.dumps(iterator.get_state())]
    elements: list[Any] = []
    while len(elements) < most:
        try:
            elements.append(next(iterator))
        except StopIteration:
            break
        states.append(json.dumps(iterator.get_state()))
    for number, state in enumerate(states):
        resumed = iter(dataset)
        resumed.set_state(json.loads(state))
        assert json.dumps(resumed.get_state()) == state, number
        if number % 2:
            resumed.start_prefetch()
        rest = take(resumed, most - number)
        assert_same(rest, elements[number:], f"after {number} elements")


# Functions that take any element: a number or an array of them.


def total(element: Any) -> int:
    return int(np.sum(element))


def double(element: Any) -> Any:
    return element * 2 + 1


def number(index: int, element: Any) -> Any:
    return element * 3 + index


def jitter(element: Any, rng: np.random.Generator) -> Any:
    return element + rng.integers(1000)


def passes(divisor: int) -> Callable[[Any], bool]:
    return lambda element: total(element) % divisor != 0


def splitting(api: Api, max_fan_out: int) -> Any:
    class Split(api.experimental.FlatMapTransform):
        def flat_map(self, element: Any) -> Any:
            return [element + piece for piece in range(total(element) % (max_fan_out + 1))]

    split = Split()
    split.max_fan_out = max_fan_out
    return split


def picking(api: Api, length: int) -> Any:
    class Pick(api.transforms.DatasetSelectionMap):
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int) -> tuple[int, int]:
            return index % 2, index * 3 // 2

    return Pick()


def every_other(api: Api, parent: Any) -> Any:
    """A dataset of the user's own in the middle of a pipeline."""

    class EveryOther(api.MapDataset):
        def __len__(self) -> int:
            return (len(self._parent) + 1) // 2

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                return self.slice(index)
            return self._parent[2 * index]

    return EveryOther(parent)


Op = tuple[Any, ...]


def with_map_op(api: Api, ds: Any, op: Op) -> Any:  # noqa: C901  (a case for each step)
    """Apply one step of a random chain to a map dataset."""
    match op:
        case ("seed", seed):
            return ds.seed(seed)
        case ("shuffle", seed):
            return ds.shuffle(seed=seed)
        case ("slice", start, stop, step):
            return ds.slice(slice(start, stop, step))
        case ("item", start, stop, step):
            return ds[start:stop:step]
        case ("repeat", num_epochs, reseeds):
            return ds.repeat(num_epochs, reseed_each_epoch=reseeds)
        case ("map",):
            return ds.map(double)
        case ("map_with_index",):
            return ds.map_with_index(number)
        case ("random_map", seed):
            return ds.random_map(jitter, seed=seed)
        case ("filter", divisor):
            return ds.filter(passes(divisor))
        case ("batch", size, drop_remainder):
            return ds.batch(size, drop_remainder=drop_remainder)
        case ("window", size, seed):
            return api.experimental.WindowShuffleMapDataset(ds, window_size=size, seed=seed)
        case ("flat", max_fan_out):
            return api.experimental.FlatMapMapDataset(ds, splitting(api, max_fan_out))
        case ("zip",):
            both = api.experimental.ZipMapDataset([ds, ds.map(double)])
            return both.map(lambda pair: -1 if pair[0] is None else pair[0] + pair[1])
        case ("mix", length, weights, seed):
            other = api.MapDataset.range(100, 100 + length)
            other = other if seed is None else other.seed(seed)
            return api.MapDataset.mix([ds, other], weights)
        case ("concatenate", length):
            return api.MapDataset.concatenate([api.MapDataset.range(200, 200 + length), ds])
        case ("select", length):
            datasets = [ds, api.MapDataset.range(300, 307).seed(8)]
            return api.MapDataset.select_from_datasets(datasets, picking(api, length))
        case ("custom",):
            return every_other(api, ds)
    raise AssertionError(op)


BASES = {
    "range": lambda api: api.MapDataset.range(11),
    "range from": lambda api: api.MapDataset.range(3, 40, 5),
    "range back": lambda api: api.MapDataset.range(9, -3, -2),
    "list": lambda api: api.MapDataset.source([5, 3, 8, 1, 9, 2]),
    "array": lambda api: api.MapDataset.source(np.arange(14, dtype=np.int32).reshape(7, 2)),
    "gaps": lambda api: api.MapDataset.source([5, None, 8, None, None, 2]),
    "one": lambda api: api.MapDataset.range(1),
    "dataset": lambda api: api.MapDataset.source(api.MapDataset.range(5).map(double)),
}


def build_map(api: Api, base: str, ops: tuple[Op, ...]) -> Any:
    """Make the map dataset of a chain."""
    dataset = BASES[base](api)
    for op in ops:
        dataset = with_map_op(api, dataset, op)
    return dataset


_bound = st.none() | st.integers(-6, 14)
_step = st.none() | st.sampled_from([1, 2, 3, -1, -2])
_seed = st.none() | st.integers(0, 50)

MAP_OPS = st.one_of(
    st.tuples(st.just("seed"), st.integers(0, 50)),
    st.tuples(st.just("shuffle"), _seed),
    st.tuples(st.sampled_from(["slice", "item"]), _bound, _bound, _step),
    st.tuples(st.just("repeat"), st.integers(1, 3), st.booleans()),
    st.tuples(st.sampled_from(["map", "map_with_index", "zip", "custom"])),
    st.tuples(st.just("random_map"), _seed),
    st.tuples(st.just("filter"), st.integers(2, 4)),
    st.tuples(st.just("batch"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("window"), st.integers(1, 7), st.integers(0, 50)),
    st.tuples(st.just("flat"), st.integers(1, 3)),
    st.tuples(
        st.just("mix"),
        st.integers(1, 9),
        st.none() | st.lists(st.sampled_from([0.1, 0.25, 0.5, 1.0, 3.0]), min_size=2, max_size=2),
        _seed,
    ),
    st.tuples(st.just("concatenate"), st.integers(1, 5)),
    st.tuples(st.just("select"), st.integers(1, 9)),
)
MAP_CHAINS = st.tuples(st.sampled_from(list(BASES)), st.lists(MAP_OPS, max_size=6).map(tuple))
