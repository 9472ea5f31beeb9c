"""Random trees of streams over streams, as tuples that hypothesis prints, built for either side."""

from typing import Any

from hypothesis import strategies as st

from gristmill import experimental
from tests.compat.both_sides import Api, double, number, oracle, ours, passes, splitting

Tree = tuple[Any, ...]


def streams(api: Api) -> Any:
    """Where a side has its datasets over streams."""
    return experimental if api is ours else oracle.experimental


def fold(element: Any) -> Any:
    """One number of whatever the element is made of."""
    if isinstance(element, tuple):
        return sum((place + 1) * fold(item) for place, item in enumerate(element))
    return element


def pieces(api: Api, most: int) -> Any:
    """The rows of a batch one by one."""

    class Rows(api.experimental.FlatMapTransform):
        max_fan_out = most

        def flat_map(self, element: Any) -> Any:
            return list(element)

    return Rows()


def numbers(api: Api, *bounds: int) -> Any:
    """A stream of integers. Grain's reads in this thread: it is to be an oracle, not fast."""
    options = api.ReadOptions(num_threads=0) if api is oracle else None
    return api.MapDataset.range(*bounds).to_iter_dataset(options)


def build(api: Api, tree: Tree) -> Any:
    """Make the stream of a tree."""
    of = streams(api)
    match tree:
        case ("range", start, count):
            return numbers(api, start, start + count)
        case ("mix", parts, weights):
            return api.IterDataset.mix([build(api, part) for part in parts], weights)
        case ("zip", parts):
            zipped = of.ZipIterDataset([build(api, part) for part in parts], strict=False)
            return zipped.map(fold)
        case ("interleave", parts, cycle):
            parts = [build(api, part) for part in parts]
            return of.InterleaveIterDataset(parts, cycle_length=cycle)
        case (kind, part, *arguments):
            return _step(api, of, build(api, part), kind, *arguments)
    raise AssertionError(tree)


def _step(api: Api, of: Any, below: Any, kind: str, *arguments: Any) -> Any:
    match (kind, *arguments):
        case ("map",):
            return below.map(double)
        case ("fail", value):
            return below.map(lambda x: (1 // (x != value)) * x)
        case ("count",):
            return below.map_with_index(number)
        case ("filter", divisor):
            return below.filter(passes(divisor))
        case ("flat", fan_out):
            return api.experimental.FlatMapIterDataset(below, splitting(api, fan_out))
        case ("window", size, seed):
            return of.WindowShuffleIterDataset(below, window_size=size, seed=seed)
        case ("rebatch", size, other, drop):
            rebatched = of.RebatchIterDataset(below.batch(size), other, drop_remainder=drop)
            return api.experimental.FlatMapIterDataset(rebatched, pieces(api, other))
        case ("repeat" | "limit", count):
            return getattr(of, f"{kind.title()}IterDataset")(below, count)
        case ("cache",):
            return of.CacheIterDataset(below)
    raise AssertionError(kind)


STEPS = {
    "map": st.tuples(),
    "count": st.tuples(),
    "cache": st.tuples(),
    "filter": st.tuples(st.integers(2, 4)),
    "flat": st.tuples(st.integers(1, 3)),
    "window": st.tuples(st.integers(1, 9), st.integers(0, 50)),
    "rebatch": st.tuples(st.integers(1, 4), st.integers(1, 5), st.booleans()),
    "repeat": st.tuples(st.integers(1, 3)),
    "limit": st.tuples(st.integers(1, 12)),
}
FAILING = {**STEPS, "fail": st.tuples(st.integers(0, 100))}
WEIGHTS = [0.1, 0.25, 0.5, 0.7, 1.0, 3.0]


@st.composite
def trees(draw: st.DrawFn, steps: dict[str, Any] = STEPS, depth: int = 4) -> Tree:
    """Draw a tree, of any kind of node with the same chance."""
    kind = (
        draw(st.sampled_from(["range", "mix", "zip", "interleave", *steps])) if depth else "range"
    )
    if kind in steps:
        return (kind, draw(trees(steps, depth - 1)), *draw(steps[kind]))
    if kind == "range":
        return (kind, draw(st.integers(0, 100)), draw(st.integers(0, 12) | st.just(300)))
    parts = tuple(draw(st.lists(trees(steps, depth - 1), min_size=1, max_size=3)))
    if kind == "zip":
        return (kind, parts)
    if kind == "interleave":
        return (kind, parts, draw(st.integers(1, 4)))
    weights = [draw(st.sampled_from(WEIGHTS)) for _ in parts]
    return (kind, parts, draw(st.sampled_from([None, weights])))


TREES = trees()
FAILING_TREES = trees(FAILING)
