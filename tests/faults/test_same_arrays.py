"""Batches from workers equal those made here: in dtype, shape, byte order, writability, layout."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gristmill import ArraySource, Batch, DataLoader

MakeLoader = Callable[..., DataLoader]

POINT = np.dtype([("x", ">f4"), ("n", "u1", (3,)), ("name", "U5")])
ALIGNED = np.dtype([("a", "u1"), ("b", "f8")], align=True)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return an array that may not be written to."""
    array.flags.writeable = False
    return array


def grid(n: int, dtype: Any = np.float32) -> np.ndarray:
    """Return 300 by 250 numbers, enough to go through shared memory."""
    return (np.arange(75_000).reshape(300, 250) % 1000 + n).astype(dtype)


SMALL_AND_LARGE: dict[str, Callable[[int], Any]] = {
    "float": grid,
    "big-endian": lambda n: grid(n, ">i4"),
    "little-endian": lambda n: grid(n, "<u2"),
    "half": lambda n: grid(n, np.float16),
    "bool": lambda n: grid(n) % 2 == 0,
    "complex": lambda n: grid(n, ">c16"),
    "long double": lambda n: grid(n, np.longdouble),
    "bfloat16": lambda n: grid(n, ml_dtypes.bfloat16),
    "int4": lambda n: (grid(n) % 7).astype(ml_dtypes.int4),
    "times": lambda n: np.datetime64("2020-01-01", "s") + grid(n, "m8[s]"),
    "time spans": lambda n: grid(n, "m8[D]"),
    "big-endian times": lambda n: grid(n, "i8").view("M8[ns]").astype(">M8[ns]"),
    "structured": lambda n: np.array([(k + n, (k, 2, 3), f"p{k}") for k in range(200)], POINT),
    "aligned structured": lambda n: np.array([(k % 99, k + n) for k in range(400)], ALIGNED),
    "text": lambda n: np.array([f"text {n + k}" for k in range(500)]),
    "big-endian text": lambda n: np.array([f"text {n + k}" for k in range(500)]).astype(">U9"),
    "bytes": lambda n: np.array([f"text {n + k}".encode() for k in range(500)]),
    "void": lambda n: grid(n, "u2").view("V4"),
    "frozen": lambda n: frozen(grid(n)),
    "frozen and small": lambda n: frozen(np.arange(n, n + 5)),
    "Fortran": lambda n: np.asfortranarray(grid(n)),
    "frozen Fortran": lambda n: frozen(np.asfortranarray(grid(n))),
    "every other": lambda n: grid(n)[::2, ::3],
    "backwards": lambda n: grid(n)[::-1],
    "stretched": lambda n: np.broadcast_to(np.arange(n, n + 500), (4, 500)),
    "one number": lambda n: np.array(n),
    "one big-endian number": lambda n: np.array(n, ">f8"),
    "one frozen number": lambda n: frozen(np.array(n)),
    "one text": lambda n: np.array(f"number {n}"),
    "one time": lambda n: np.array(n, "M8[D]"),
    "NumPy scalar": lambda n: np.float32(n),
    "NumPy time": lambda n: np.datetime64(n, "D"),
    "NumPy text": lambda n: np.str_(f"number {n}"),
    "empty": lambda n: np.empty((0, 3), np.float32),
    "empty in the middle": lambda n: np.empty((4, 0, 2), ">i8"),
    "empty and frozen": lambda n: frozen(np.empty((0, 3), "M8[s]")),
    "empty text": lambda n: np.array(["", ""]),
    "objects": lambda n: np.array([n, "two", None, {"three": 3}] * 300, object),
    "frozen objects": lambda n: frozen(np.array([[n], [None]], object)),
    "one object": lambda n: np.array({"n": n}, object),
    "record array": lambda n: np.rec.array(
        [(n, "a"), (n + 1, "b")], [("n", ">i4"), ("name", "U3")]
    ),
    "masked": lambda n: np.ma.masked_equal(grid(n, np.int32), n + 3),
    "matrix in a tuple": lambda n: (grid(n), {"deep": [grid(n, "u1"), f"text {n}"]}),
    "bytes object": lambda n: bytes([n % 256]) * 5000,
    "bytearray": lambda n: bytearray([n % 256]) * 5000,
    "Python": lambda n: [n, float(n), complex(n), f"{n}", None, True, {n}, frozenset({n}), ...],
}


def facts(thing: Any) -> Any:
    """Return all that distinguishes an element from another."""
    if isinstance(thing, dict):
        return {key: facts(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return type(thing), [facts(item) for item in thing]
    if isinstance(thing, np.ma.MaskedArray):
        return "masked", facts(thing.data), facts(np.ma.getmaskarray(thing))
    if isinstance(thing, np.ndarray | np.generic):
        array = np.asarray(thing)
        has_gaps = array.dtype.names is not None or array.dtype == np.longdouble
        content = array.tolist() if array.dtype.hasobject or has_gaps else array.tobytes()
        flags = thing.flags
        order = (flags.c_contiguous, flags.f_contiguous) if flags.forc else "strided"
        return (
            type(thing),
            (array.dtype, array.dtype.str, array.dtype.isalignedstruct),
            array.shape,
            flags.writeable,
            order if flags.forc else (True, array.ndim < 2),  # what has gaps is sent without them
            content,
        )
    return type(thing), thing


@pytest.mark.filterwarnings("ignore:.*matrix.*:PendingDeprecationWarning")
def test_elements_of_all_kinds_are_the_same(make_loader: MakeLoader):
    makers = SMALL_AND_LARGE

    def step(n: int) -> Any:
        return {name: make(n) for name, make in makers.items()}

    inline = list(make_loader(range(6), step, worker_count=0))
    with iter(make_loader(range(6), step)) as iterator:
        through_workers = list(iterator)

    for one, other in zip(through_workers, inline, strict=True):
        assert one.keys() == other.keys()
        differing = {
            name: (facts(one[name]), facts(other[name]))
            for name in one
            if _summary(one[name]) != _summary(other[name])
        }
        assert differing == {}


def _summary(thing: Any) -> str:
    return repr(facts(thing))


BATCHED = [
    name
    for name in SMALL_AND_LARGE
    if name not in ("record array", "masked", "Python", "bytearray", "int4")
]


def test_batches_of_all_kinds_are_the_same(make_loader: MakeLoader):
    makers = {name: SMALL_AND_LARGE[name] for name in BATCHED}

    def step(n: int) -> Any:
        return {name: make(n) for name, make in makers.items()}

    inline = list(make_loader(range(7), step, Batch(3), worker_count=0))
    with iter(make_loader(range(7), step, Batch(3))) as iterator:
        through_workers = list(iterator)

    assert len(through_workers) == 3
    for one, other in zip(through_workers, inline, strict=True):
        assert one.keys() == other.keys()
        differing = {
            name: (facts(one[name]), facts(other[name]))
            for name in one
            if _summary(one[name]) != _summary(other[name])
        }
        assert differing == {}


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("operations", [(), (Batch(4),)])
def test_columns_from_workers_are_the_same(
    make_loader: MakeLoader, is_frozen: bool, operations: tuple[Any, ...]
):
    data = {"x": np.arange(60_000.0).reshape(10, -1), "y": np.arange(10, dtype=">i2")}
    if is_frozen:
        data = {name: frozen(array) for name, array in data.items()}
    loaders = [make_loader(ArraySource(data), *operations, worker_count=count) for count in (0, 2)]
    inline, through_workers = (list(loader) for loader in loaders)

    assert [_summary(one) for one in through_workers] == [_summary(one) for one in inline]


def test_an_object_that_is_in_an_element_twice_is_one_object(make_loader: MakeLoader):

    def step(n: int) -> Any:
        array = np.full(5000, n)
        return {"a": array, "b": array}

    for element in make_loader(range(10), step):
        assert element["a"] is element["b"]


def test_batches_are_aligned_for_jax(make_loader: MakeLoader):
    loader = make_loader(
        range(40),
        lambda n: {"x": np.full(40_001, n, np.uint8), "y": np.full(30_001, n, np.float32)},
        Batch(5),
    )

    for batch in loader:
        assert [array.ctypes.data % 64 for array in batch.values()] == [0, 0]
