"""Runs one program under Grain (the oracle) and under gristmill and compares what comes out.

A *program* is a function of the API module: `program(oracle)` and `program(ours)` build the same
loader twice. Operations are therefore given as functions of the module too, because each side's
transforms must derive from its own base classes.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grain.python
import jax
import numpy as np
from hypothesis import settings

import gristmill.python

API = Any
oracle: API = grain.python
ours: API = gristmill.python
Program = Callable[[API], Any]
MakeOperation = Callable[[API], Any]

# The examples are the same on every run: a red build is one anybody can repeat.
STEADY = settings(max_examples=120, deadline=None, derandomize=True, database=None)


# Strict equality


def assert_same(actual: Any, expected: Any, at: str = "element") -> None:
    """Equal in type of every container and leaf, dtype, shape and bytes; dicts in any key order."""
    assert type(actual) is type(expected), f"{at}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, np.ndarray | np.generic):
        _assert_same_array(actual, expected, at)
    elif isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), f"{at}: other keys"
        for key in expected:
            assert_same(actual[key], expected[key], f"{at}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), f"{at}: {len(actual)} items, not {len(expected)}"
        for position, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{at}[{position}]")
    elif isinstance(expected, jax.Array):
        _assert_same_array(np.asarray(actual), np.asarray(expected), at)
    elif dataclasses.is_dataclass(expected) or _is_plain_object(expected):
        assert_same(vars(actual), vars(expected), at)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(actual), f"{at}: {actual!r} is not nan"
    else:
        assert actual == expected, f"{at}: {actual!r} is not {expected!r}"


def _is_plain_object(value: Any) -> bool:
    """Whether `==` would only ask for identity, and there are attributes to compare instead."""
    return type(value).__eq__ is object.__eq__ and hasattr(value, "__dict__")


def _assert_same_array(actual: Any, expected: Any, at: str) -> None:
    assert actual.dtype == expected.dtype, f"{at}: dtype {actual.dtype}, not {expected.dtype}"
    assert actual.shape == expected.shape, f"{at}: shape {actual.shape}, not {expected.shape}"
    if expected.dtype.hasobject:
        assert_same(actual.tolist(), expected.tolist(), at)
    else:
        assert actual.tobytes() == expected.tobytes(), f"{at}: {actual!r} is not {expected!r}"


# Programs


def make_loader(
    api: API, source: Any, *operations: MakeOperation, sampler: Any = None, **options: Any
) -> Any:
    """A loader of `source` in this process; in order and once unless a sampler differs."""
    if sampler is None:
        sampler = api.IndexSampler(len(source), num_epochs=1, seed=0)
    return api.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[make(api) for make in operations],
        worker_count=0,
        read_options=api.ReadOptions(num_threads=0),
        **options,
    )


def stream(loader: Iterable[Any], limit: int | None = None) -> list[Any]:
    return list(itertools.islice(loader, limit))


def assert_same_stream(program: Program, limit: int | None = None) -> list[Any]:
    """Both sides yield the same elements in the same order; returns them."""
    expected = stream(program(oracle), limit)
    actual = stream(program(ours), limit)
    assert_same(actual, expected, "stream")
    return actual


def assert_same_error(action: Callable[[API], Any]) -> BaseException:
    """Both sides refuse, with the same type of exception; returns ours."""
    expected, actual = _error_of(action, oracle), _error_of(action, ours)
    assert expected is not None, "Grain accepts this."
    assert actual is not None, f"Grain raises {expected!r}; gristmill accepts it."
    assert isinstance(actual, type(expected)), f"{actual!r} is no {type(expected).__name__}"
    return actual


def _error_of(action: Callable[[API], Any], api: API) -> Exception | None:
    try:
        action(api)
    except Exception as error:
        return error
    return None


# Operations, as functions of the API module


def _subclass(base: type, **members: Any) -> Any:
    return type("Local" + base.__name__, (base,), members)()


def mapping(function: Callable[[Any], Any]) -> MakeOperation:
    return lambda api: _subclass(api.MapTransform, map=lambda self, x: function(x))


def random_mapping(function: Callable[[Any, Any], Any]) -> MakeOperation:
    return lambda api: _subclass(
        api.RandomMapTransform, random_map=lambda self, x, rng: function(x, rng)
    )


def filtering(keep: Callable[[Any], Any]) -> MakeOperation:
    return lambda api: _subclass(api.FilterTransform, filter=lambda self, x: keep(x))


def flat_mapping(function: Callable[[Any], Sequence[Any]], max_fan_out: int) -> MakeOperation:
    return lambda api: _subclass(
        api.experimental.FlatMapTransform,
        max_fan_out=max_fan_out,
        flat_map=lambda self, x: function(x),
    )


def batching(batch_size: int, **options: Any) -> MakeOperation:
    return lambda api: api.Batch(batch_size=batch_size, **options)


def older(name: str, *arguments: Any, **options: Any) -> MakeOperation:
    """One of `MapOperation`, `RandomMapOperation`, `FilterOperation`, `BatchOperation`."""
    return lambda api: getattr(api, name)(*arguments, **options)
