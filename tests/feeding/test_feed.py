"""Feeding one device: what comes, where it stands, and how it ends."""

import datetime
import gc
import json
import re
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import grain
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill._pump import Pump
from gristmill.errors import ClosedError, FeedError, PlanError, PlanTypeError, StateError
from gristmill.feeding import FeedIterator
from gristmill.loader import load

PATIENCE_S = 20.0  # only a test that fails waits so long

Find = Callable[[], list[threading.Thread]]
How = Literal["keep", "drop", "pad"]

EACH_AHEAD = pytest.mark.parametrize("ahead", [0, 2])


class Watched:
    """An iterator of the user's own, which notes where the arrays are that it gives."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.addresses: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self.iterator)
        self.addresses.append(batch.ctypes.data)
        return batch

    def get_state(self) -> Any:
        return self.iterator.get_state()

    def set_state(self, state: Any) -> None:
        self.iterator.set_state(state)

    def close(self) -> None:
        self.iterator.close()


def loader(num_records: int = 10, batch_size: int = 4, **arguments: Any) -> gm.DataLoader:
    records = np.arange(num_records, dtype=np.int32)
    return load(records, num_epochs=1, batch_size=batch_size, **arguments)


def numbers(count: int, *steps: Callable[[Any], Any]) -> gm.MapDataset[Any]:
    ds: gm.MapDataset[Any] = gm.MapDataset.range(count).map(np.int32)
    for step in steps:
        ds = ds.map(step)
    return ds


def of(value: Any) -> gm.MapDataset[Any]:
    """Give a dataset whose only element is this."""
    return gm.MapDataset.range(1).map(lambda _: value)


def first(data: Any, *where: Any, **arguments: Any) -> Any:
    with gm.feed(data, *where, **arguments) as iterator:
        return next(iterator)


def lists(batches: Any) -> list[Any]:
    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), batch) for batch in batches]


def fed(data: Any, *where: Any, **arguments: Any) -> list[Any]:
    with gm.feed(data, *where, **arguments) as iterator:
        return lists(iterator)


# What comes


@pytest.mark.parametrize("ahead", [0, 1, 2, 5, 100])
def test_the_batches_are_those_of_the_loader_on_the_device(ahead: int):
    device = jax.devices()[0]

    with gm.feed(loader(), device, ahead=ahead) as iterator:
        batches = list(iterator)

    assert all(isinstance(batch, jax.Array) for batch in batches)
    assert all(batch.devices() == {device} and batch.committed for batch in batches)
    assert lists(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_without_a_device_arrays_are_free_to_go_where_a_computation_is():
    batch = first(loader())

    assert isinstance(batch, jax.Array)
    assert not batch.committed


MAKE_DATA: dict[str, Callable[[], Any]] = {
    "loader": loader,
    "iterator_of_a_loader": lambda: iter(loader()),
    "map_dataset": lambda: numbers(10).batch(4),
    "iter_dataset": lambda: numbers(10).to_iter_dataset().batch(4),
    "iterator_of_a_dataset": lambda: iter(numbers(10).to_iter_dataset().batch(4)),
    "iterator_of_ones_own": lambda: Watched(iter(loader())),
}


@pytest.mark.parametrize("kind", MAKE_DATA)
def test_anything_that_gives_batches_and_a_state_can_be_fed(kind: str):
    assert fed(MAKE_DATA[kind]()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_feeding_goes_on_from_where_an_iterator_is():
    iterator = iter(loader())
    next(iterator)

    assert fed(iterator) == [[4, 5, 6, 7], [8, 9]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sample:
    """A pytree of the user's own."""

    image: Any
    label: Any


class Pair(NamedTuple):
    a: Any
    b: Any


def test_trees_keep_their_shape():
    tree = {"s": Sample(np.ones((2, 3)), [np.zeros(2)]), "p": Pair(None, (np.ones(1), None))}

    batch = first(of(tree))

    assert jax.tree.structure(batch) == jax.tree.structure(tree)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
    assert isinstance(batch["s"], Sample)
    assert batch["p"].a is None


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (np.array([1, 2], np.int64), "int32"),
        (np.array([1, 2], np.uint64), "uint32"),
        (np.array([-(2**31), 2**31 - 1]), "int32"),
        (np.array([], np.int64), "int32"),
        (np.array([1, 2], np.uint8), "uint8"),
        (np.array([1.5, 2.5]), "float32"),
        (np.array([1.5, 2.5], np.float16), "float16"),
        (np.array([1, 2], ml_dtypes.bfloat16), "bfloat16"),
        (np.array([1, 2], ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (np.array([1j]), "complex64"),
        (np.array([True, False]), "bool"),
        (np.array([1, 258], ">i2"), "int16"),
        (np.array([1, 258], ">i8"), "int32"),
        (np.array([1.5, 3.25], ">f4"), "float32"),
        (np.arange(12)[::3], "int32"),
        (np.ones((3, 4), np.float32).T, "float32"),
        (np.int64(7), "int32"),
        (np.float32(1.5), "float32"),
        (3, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        (jnp.arange(3), "int32"),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', value)!s}",
)
def test_numbers_of_every_kind_become_arrays(leaf: Any, dtype: str):
    array = first(of({"x": leaf}))["x"]

    assert isinstance(array, jax.Array)
    assert array.dtype == dtype
    assert array.shape == np.shape(leaf)
    native = np.asarray(leaf)
    if not native.dtype.isnative:
        native = native.astype(native.dtype.newbyteorder("="))
    np.testing.assert_array_equal(np.asarray(array), native.astype(array.dtype))


UNHELD: dict[str, Any] = {
    "text": "a cat",
    "bytes": b"raw",
    "texts": np.array(["a", "b"]),
    "bytes_array": np.array([b"a", b"b"]),
    "objects": np.array([{}, None], object),
    "times": np.array(["2020-01-01"], "datetime64[D]"),
    "durations": np.array([3], "timedelta64[s]"),
    "records": np.zeros(2, [("x", np.int32)]),
    "date": datetime.date(2020, 1, 1),
    "anything": {1, 2},
}


@EACH_AHEAD
@pytest.mark.parametrize("kind", UNHELD)
def test_what_jax_cannot_hold_is_refused_by_name(kind: str, ahead: int):
    batch = {"x": np.ones(2), "meta": [np.ones(1), UNHELD[kind]]}

    with pytest.raises(FeedError, match=r"batch\['meta'\]\[1\] is .*JAX cannot hold.*others"):
        first(of(batch), ahead=ahead)


@pytest.mark.parametrize("kind", UNHELD)
def test_what_jax_cannot_hold_is_handed_through_on_request(kind: str):
    leaf = UNHELD[kind]

    batch = first(of({"x": np.ones(2), "meta": [leaf]}), others="pass")

    assert batch["meta"][0] is leaf
    assert isinstance(batch["x"], jax.Array)


def test_texts_are_handed_through_beside_padded_rows():
    ds = numbers(3).map(lambda x: {"x": x, "name": str(x)}).batch(2)

    with gm.feed(ds, last="pad", others="pass") as iterator:
        batches = list(iterator)

    assert [batch["name"].tolist() for batch in batches] == [["0", "1"], ["2"]]
    assert lists(batch["x"] for batch in batches) == [[0, 1], [2, 0]]


@EACH_AHEAD
@pytest.mark.parametrize(
    "leaf",
    [np.array([1, 2**40]), np.int64(2**40), 2**40, -(2**40), np.array([2**40, 1], ">u8")],
    ids=["array", "scalar", "int", "negative_int", "big_endian"],
)
def test_a_number_that_does_not_fit_is_refused_by_name(leaf: Any, ahead: int):
    with pytest.raises(FeedError, match=rf"batch\['id'\] holds -?{2**40}, .*int32.*enable_x64"):
        first(of({"id": leaf}), ahead=ahead)


@EACH_AHEAD
def test_with_64_bits_such_numbers_are_held_in_whichever_thread(ahead: int):
    batch = {"id": np.array([2**40]), "int": 2**40, "f": np.array([0.1]), "x": np.ones(1, ">f8")}

    with jax.enable_x64(True):
        iterator = gm.feed(of(batch), ahead=ahead)
        given = next(iterator)
    iterator.close()

    assert {key: leaf.dtype.name for key, leaf in given.items()} == {
        "id": "int64",
        "int": "int64",
        "f": "float64",
        "x": "float64",
    }
    assert np.asarray(given["id"]).tolist() == [2**40]
    assert np.asarray(given["f"]).tolist() == [0.1]


# Without copies


# Sent to workers as it is; for a function with a name they would import this module, and JAX.
IMAGE: Any = lambda index: np.full(2**20, index, np.uint8)  # noqa: E731


def images(batch_size: int) -> gm.DataLoader:
    """Give a loader whose batches are large enough to travel in shared memory."""
    return gm.DataLoader(
        data_source=range(120),
        sampler=gm.IndexSampler(120, num_epochs=1),
        operations=[IMAGE, gm.Batch(batch_size)],
        worker_count=1,
    )


def test_batches_of_workers_are_not_copied_on_their_way_to_jax():
    source = Watched(iter(images(batch_size=8)))

    with gm.feed(source) as iterator:
        batches = list(islice(iterator, 5))
        pointers = [batch.unsafe_buffer_pointer() for batch in batches]

    assert [address % 64 for address in source.addresses[:5]] == [0] * 5
    assert pointers == source.addresses[:5]


def test_inline_batches_are_not_copied_where_jax_can_take_them_as_they_are():
    memory = np.zeros(64 * 65, np.uint8)
    start = -memory.ctypes.data % 64
    for offset in (0, 64, 4):
        array = memory[start + offset :][:256].view(np.float32)
        source = Watched(iter(of(array).to_iter_dataset()))

        with gm.feed(source) as iterator:
            given = next(iterator)

        assert source.addresses[0] == array.ctypes.data
        assert (given.unsafe_buffer_pointer() == array.ctypes.data) == (offset != 4)


def test_a_kept_batch_never_changes_while_memory_of_others_is_used_again():
    source = Watched(iter(images(batch_size=4)))
    kept: list[tuple[int, jax.Array]] = []

    with gm.feed(source) as iterator:
        for number, batch in enumerate(iterator):
            if number % 8 == 3:
                kept.append((number, batch))
            del batch

    assert len(set(source.addresses)) < len(source.addresses) == 30  # some was used again
    assert len(kept) == 4
    for number, batch in kept:
        assert batch.unsafe_buffer_pointer() == source.addresses[number]
        expected = np.arange(4 * number, 4 * number + 4)
        assert (np.asarray(batch) == expected[:, None]).all()


# The last, smaller batch


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("keep", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        ("drop", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (
            "pad",
            [
                ([0, 1, 2, 3], [True] * 4),
                ([4, 5, 6, 7], [True] * 4),
                ([8, 9, 0, 0], [True, True, False, False]),
            ],
        ),
    ],
)
@EACH_AHEAD
def test_the_last_batch_is_kept_dropped_or_padded(last: How, expected: list[Any], ahead: int):
    assert fed(loader(), last=last, ahead=ahead) == expected


@pytest.mark.parametrize("last", ["keep", "drop", "pad"])
def test_data_that_fill_their_batches_come_whole(last: How):
    batches = fed(loader(8), last=last)

    assert len(batches) == 2
    if last == "pad":
        assert [mask for _, mask in batches] == [[True] * 4] * 2


def test_a_dict_gets_its_mask_as_a_leaf():
    ds = numbers(3).map(lambda x: {"x": x, "y": np.full(2, x)}).batch(2)

    assert fed(ds, last="pad") == [
        {"x": [0, 1], "y": [[0, 0], [1, 1]], "mask": [True, True]},
        {"x": [2, 0], "y": [[2, 2], [0, 0]], "mask": [True, False]},
    ]
    assert [set(batch) for batch in fed(ds, last="pad", mask="real")] == [{"x", "y", "real"}] * 2


def test_a_leaf_named_as_the_mask_is_not_overwritten():
    ds = numbers(3).map(lambda x: {"x": x, "mask": x}).batch(2)

    with pytest.raises(FeedError, match="a leaf 'mask' already"):
        fed(ds, last="pad")
    assert fed(ds, last="pad", mask="real")[1]["real"] == [True, False]


def test_registered_dataclasses_and_arrays_of_jax_are_padded():
    ds = numbers(3).batch(2).map(lambda x: Sample(jnp.asarray(x) + 1, x))

    batches = fed(ds, last="pad")

    assert batches == [(Sample([1, 2], [0, 1]), [True, True]), (Sample([3, 0], [2, 0]), [True, 0])]


def test_scalars_and_random_keys_are_no_rows_to_pad():
    key = jax.random.key(3)
    ds = numbers(3).batch(2).map(lambda x: {"x": x, "a_step": 7, "key": key})

    with gm.feed(ds, last="pad") as iterator:
        batch = list(iterator)[-1]

    assert np.asarray(batch["x"]).tolist() == [2, 0]
    assert batch["a_step"] == 7
    assert batch["key"] == key


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.uint8, ml_dtypes.bfloat16, ">i4"])
def test_padding_is_zero_in_every_type(dtype: Any):
    ds = gm.MapDataset.range(3).map(lambda _: np.ones(2, dtype)).batch(2)

    with gm.feed(ds, last="pad") as iterator:
        array, _ = list(iterator)[-1]

    assert array.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.asarray(array, np.float32).tolist() == [[1, 1], [0, 0]]


EPOCHS = [[0, 1], [2, 3], [4]] * 2


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("keep", EPOCHS),
        ("drop", [batch for batch in EPOCHS if len(batch) == 2]),
        (
            "pad",
            [([*b, 0][:2], [True, len(b) == 2]) for b in EPOCHS],
        ),
    ],
)
def test_each_epoch_may_end_with_a_smaller_batch(last: How, expected: list[Any]):
    ds = numbers(5).batch(2).repeat(2)

    assert fed(ds, last=last) == expected

    for count in range(len(expected)):  # and it goes on exactly there
        with gm.feed(ds, last=last) as iterator:
            head = lists(islice(iterator, count))
            state = json.loads(json.dumps(iterator.get_state()))
        with gm.feed(ds, last=last) as resumed:
            resumed.set_state(state)
            assert head + lists(resumed) == expected


@pytest.mark.parametrize(("last", "num_compilations"), [("keep", 2), ("drop", 1), ("pad", 1)])
def test_only_a_kept_smaller_batch_is_compiled_for(last: How, num_compilations: int):
    traced: list[Any] = []

    @jax.jit
    def step(total: jax.Array, batch: Any) -> jax.Array:
        traced.append(jax.tree.map(jnp.shape, batch))
        return total + batch["x"].sum()

    ds = numbers(18).map(lambda x: {"x": x}).batch(4).repeat(2)
    total, num_steps = jnp.int32(0), 0
    with gm.feed(ds, last=last) as iterator:
        for batch in iterator:
            total = step(total, batch)
            num_steps += 1

    assert len(traced) == num_compilations
    assert num_steps == (8 if last == "drop" else 10)
    assert total == 2 * sum(range(16 if last == "drop" else 18))


def test_rows_that_cannot_be_counted_are_explained():
    with pytest.raises(FeedError, match=re.escape('batch["a"]: 2, batch["b"]: 3')):
        fed(of({"a": np.ones(2), "b": np.ones(3)}), last="pad", batch_size=4)
    with pytest.raises(FeedError, match="no array with rows"):
        fed(of({"a": 1}), last="drop", batch_size=4)
    for kind in ("texts", "records", "objects", "anything"):
        with pytest.raises(FeedError, match="no array with rows"):
            fed(of({"a": UNHELD[kind]}), last="pad", batch_size=4, others="pass")
    with pytest.raises(FeedError, match=r"has 4 rows, and `batch_size` is 3"):
        fed(loader(), last="pad", batch_size=3)


def test_the_size_may_be_told_where_the_pipeline_does_not():
    data = Watched(iter(loader()))

    with pytest.raises(PlanError, match=r"does not tell. Pass `batch_size`"):
        gm.feed(data, last="drop")
    assert fed(data, last="drop", batch_size=4) == [[0, 1, 2, 3], [4, 5, 6, 7]]


# Where it stands


@settings(deadline=None, max_examples=60)
@given(
    num_records=st.integers(1, 30),
    batch_size=st.integers(1, 7),
    ahead=st.integers(0, 5),
    last=st.sampled_from(["keep", "drop", "pad"]),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_the_state_is_that_of_what_was_handed_out(
    num_records: int, batch_size: int, ahead: int, last: How, seed: int, data: st.DataObject
):
    make = partial(loader, num_records, batch_size, shuffle=True, seed=seed)
    own = iter(make())
    states = [own.get_state()]
    states.extend(own.get_state() for _ in own)
    own.close()
    expected = fed(make(), last=last, ahead=0)
    cut = data.draw(st.integers(0, len(expected)), label="cut")

    iterator = gm.feed(make(), last=last, ahead=ahead)
    head = lists(islice(iterator, cut))
    assert iterator.get_state() == states[cut]
    iterator.close()
    assert iterator.get_state() == states[cut]

    resumed = iter(make())  # the loader's own goes on from it
    resumed.set_state(states[cut])
    assert head + fed(resumed, last=last, ahead=ahead) == expected
    again = gm.feed(make(), last=last, ahead=ahead)  # and the other way round
    list(islice(again, 1))
    again.set_state(states[cut])
    assert again.get_state() == states[cut]
    assert lists(again) == expected[cut:]
    again.close()


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_with_workers_too(ahead: int):
    with gm.feed(loader(60, 4, worker_count=1), ahead=ahead) as iterator:
        head = lists(islice(iterator, 5))
        state = iterator.get_state()
        rest = lists(iterator)
    own = iter(loader(60, 4))
    list(islice(own, 5))

    assert state == own.get_state()
    assert head + rest == [list(range(n, n + 4)) for n in range(0, 60, 4)]
    own.close()


@EACH_AHEAD
def test_after_the_end_a_state_can_be_set_and_the_rest_comes_again(ahead: int):
    with gm.feed(loader(), ahead=ahead) as iterator:
        next(iterator)
        state = iterator.get_state()
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]
        end = iterator.get_state()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
        iterator.set_state(state)
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]
        assert iterator.get_state() == end
        iterator.set_state(end)
        assert lists(iterator) == []


@EACH_AHEAD
def test_a_state_that_does_not_fit_leaves_the_iterator_where_it_is(ahead: int):
    with gm.feed(loader(), ahead=ahead) as iterator:
        next(iterator)
        state = iterator.get_state()
        with pytest.raises(StateError):
            iterator.set_state(b"nonsense")

        assert iterator.get_state() == state
        assert lists(iterator) == [[4, 5, 6, 7], [8, 9]]


def test_setting_states_again_and_again_holds_nothing_of_what_was_ahead():
    with gm.feed(numbers(40).batch(4)) as iterator:
        state = iterator.get_state()
        next(iterator)
        runs = [weakref.ref(iterator._run)]
        for _ in range(3):
            iterator.set_state(state)
            next(iterator)
            runs.append(weakref.ref(iterator._run))
        gc.collect()

        assert [run() is None for run in runs] == [True, True, True, False]


def test_orbax_saves_a_feeding_beside_its_model(tmp_path: Path):
    def make() -> FeedIterator:
        return gm.feed(loader(20, shuffle=True, seed=1), jax.devices()[0], ahead=3)

    weights = {"w": jnp.arange(4.0)}
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager, make() as iterator:
        list(islice(iterator, 2))
        manager.save(
            2,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(weights), data=gm.PyGrainCheckpointSave(iterator)
            ),
        )
        rest = lists(iterator)
        manager.wait_until_finished()

        with make() as restored:
            items = manager.restore(
                2,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore(weights),
                    data=gm.PyGrainCheckpointRestore(restored),
                ),
            )
            assert items.data is restored
            assert lists(restored) == rest
    assert len(rest) == 3
    np.testing.assert_array_equal(items.model["w"], weights["w"])


# Errors on the way


@EACH_AHEAD
def test_an_error_of_a_step_arrives_with_its_notes_and_the_next_try_goes_on(ahead: int):
    is_broken = True

    def step(x: Any) -> Any:
        if is_broken and x == 5:
            raise KeyError("five")
        return x

    with gm.feed(numbers(10, step).batch(2), ahead=ahead) as iterator:
        assert lists([next(iterator), next(iterator)]) == [[0, 1], [2, 3]]
        state = iterator.get_state()
        for _ in range(2):
            with pytest.raises(KeyError, match="five") as raised:
                next(iterator)
            assert any("test_feed.py" in note for note in raised.value.__notes__)
            assert iterator.get_state() == state
        is_broken = False

        assert lists(iterator) == [[4, 5], [6, 7], [8, 9]]


@EACH_AHEAD
def test_a_batch_that_could_not_be_fed_is_not_lost(ahead: int):
    is_broken = True

    def step(x: Any) -> Any:
        return "text" if is_broken and x == 2 else x

    with gm.feed(numbers(5, step), ahead=ahead) as iterator:
        assert lists([next(iterator), next(iterator)]) == [0, 1]
        state = iterator.get_state()
        with pytest.raises(FeedError):
            next(iterator)
        assert iterator.get_state() == state
        is_broken = False

        assert lists(iterator) == [2, 3, 4]


def is_waiting(thread: threading.Thread) -> bool:
    """Tell whether a thread waits for what another one makes."""
    frame = sys._current_frames()[thread.ident or 0]
    names: set[str] = set()
    while frame is not None:
        names.add(frame.f_code.co_filename.rpartition("/")[2])
        frame = frame.f_back
    return "_pump.py" in names


class Gated(Watched):
    """Before it gives its third batch somebody presses Ctrl-C, once who asked for it waits."""

    def __init__(self, iterator: Any, asked: list[int]) -> None:
        super().__init__(iterator)
        self.asked = asked
        self.go_on = threading.Event()

    def __next__(self) -> Any:
        if len(self.addresses) == 2 and not self.go_on.is_set():
            me = threading.main_thread()
            look_again = threading.Event()
            while not (len(self.asked) == 3 and is_waiting(me)):
                look_again.wait(0.001)
            signal.pthread_kill(me.ident or 0, signal.SIGINT)
            self.go_on.wait(PATIENCE_S)
        return super().__next__()


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("then", ["next", "set_state", "close"])
def test_ctrl_c_while_waiting_loses_no_batch(ahead: int, then: str, own_threads: Find):
    assert threading.current_thread() is threading.main_thread()
    asked: list[int] = []
    source = Gated(iter(loader(20)), asked)
    own = iter(loader(20))
    list(islice(own, 2))
    state, rest = own.get_state(), lists(own)
    with gm.feed(source, ahead=ahead) as iterator:

        def train() -> None:
            for number in range(4):
                asked.append(number)
                next(iterator)

        with pytest.raises(KeyboardInterrupt):
            train()
        source.go_on.set()

        assert asked == [0, 1, 2]
        assert iterator.get_state() == state
        if then == "close":
            return
        if then == "set_state":
            iterator.set_state(state)
        assert lists(iterator) == rest


@jax.tree_util.register_pytree_node_class
class Interrupting:
    """A batch during whose transfer Ctrl-C comes, the first time."""

    is_first = True

    def __init__(self, x: Any) -> None:
        self.x = x

    def tree_flatten(self) -> Any:
        if Interrupting.is_first and self.x == 2:
            Interrupting.is_first = False
            signal.raise_signal(signal.SIGINT)
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Interrupting":
        return cls(*children)


def test_ctrl_c_during_the_transfer_loses_no_batch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Interrupting, "is_first", True)
    with gm.feed(numbers(5, Interrupting), ahead=0) as iterator:
        seen = [int(next(iterator).x), int(next(iterator).x)]
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        seen += [int(batch.x) for batch in iterator]

    assert seen == [0, 1, 2, 3, 4]


def test_an_interrupt_while_the_thread_starts_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, own_threads: Find
):
    start, interrupts = Pump.start, ["before", "after"]

    def interrupted(self: Pump[Any]) -> None:
        when = interrupts.pop() if interrupts else None
        if when != "before":
            start(self)
        if when is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(Pump, "start", interrupted)
    with gm.feed(numbers(8).batch(2)) as iterator:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert lists(iterator) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.fixture
def interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come once, while one waits for the thread to end."""
    wait, interrupts = Pump.wait, ["one"]

    def interrupted(self: Pump[Any], *, seconds: float | None = None) -> None:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        wait(self, seconds=seconds)

    monkeypatch.setattr(Pump, "wait", interrupted)


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_set_state_changes_nothing(own_threads: Find):
    with gm.feed(numbers(12).batch(2)) as iterator:
        start = iterator.get_state()
        assert lists(islice(iterator, 2)) == [[0, 1], [2, 3]]
        state = iterator.get_state()
        with pytest.raises(KeyboardInterrupt):
            iterator.set_state(start)

        assert iterator.get_state() == state
        assert lists(iterator) == [[4, 5], [6, 7], [8, 9], [10, 11]]


@pytest.mark.usefixtures("interrupt_once")
def test_an_interrupted_close_can_be_done_again(own_threads: Find):
    iterator = gm.feed(numbers(12).batch(2))
    next(iterator)
    state = iterator.get_state()
    with pytest.raises(KeyboardInterrupt):
        iterator.close()
    iterator.close()

    assert iterator.get_state() == state


# How far ahead, and how it ends


@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_nothing_is_made_further_ahead_than_asked_for(ahead: int, own_threads: Find):
    made: list[int] = []
    has_made = threading.Condition()

    class Source:
        """Its batches are made when the feeding asks for them, not before."""

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            with has_made:
                made.append(len(made))
                has_made.notify_all()
            return np.int32(made[-1])

        def get_state(self) -> Any:
            return len(made)

        def set_state(self, state: Any) -> None:
            del made[state:]

    iterator = gm.feed(Source(), ahead=ahead)
    iterator.start_prefetch()
    for num_taken in range(4):
        with has_made:
            assert has_made.wait_for(lambda n=num_taken: len(made) == n + ahead, PATIENCE_S)
        assert next(iterator) == num_taken
    iterator.close()  # which waits for the thread, so no more come

    assert len(made) <= 4 + ahead


def test_with_nothing_ahead_there_is_no_thread_and_nothing_is_made_too_early(own_threads: Find):
    made: list[int] = []

    def step(x: Any) -> Any:
        made.append(threading.get_ident())
        return x

    with gm.feed(Watched(Stepwise(step)), ahead=0) as iterator:
        iterator.start_prefetch()
        assert made == []
        for number in range(3):
            assert next(iterator) == number
            assert len(made) == number + 1
            assert own_threads() == []
    assert set(made) == {threading.get_ident()}


class Stepwise:
    """Numbers, each made when it is asked for."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step
        self.next = 0

    def __next__(self) -> Any:
        self.next += 1
        return self.step(np.array(self.next - 1, np.int32))

    def get_state(self) -> Any:
        return self.next

    def set_state(self, state: Any) -> None:
        self.next = state

    def close(self) -> None:
        """Nothing to close."""


def test_nothing_runs_before_the_first_batch_is_asked_for(own_threads: Find):
    iterator = gm.feed(loader())
    assert own_threads() == []

    iterator.start_prefetch()
    assert len(own_threads()) == 1
    iterator.close()


def test_closing_ends_the_thread_and_the_state_can_still_be_read(own_threads: Find):
    iterator = gm.feed(loader())
    next(iterator)
    state = iterator.get_state()
    (thread,) = own_threads()

    iterator.close()
    iterator.close()
    thread.join(PATIENCE_S)

    assert own_threads() == []
    assert iterator.get_state() == state
    for _ in range(2):
        with pytest.raises(ClosedError):
            next(iterator)
    with pytest.raises(ClosedError):
        iterator.start_prefetch()


def test_closing_after_the_end_or_after_an_error_does_too(own_threads: Find):
    for iterator in (gm.feed(loader()), gm.feed(of("text")), gm.feed(loader(), ahead=0)):
        with suppress(FeedError):
            list(iterator)
        iterator.close()
        with pytest.raises(ClosedError):
            next(iterator)


def test_closing_closes_what_is_fed_from():
    own = iter(loader())
    gm.feed(own).close()

    with pytest.raises(ClosedError):
        next(own)


def test_an_iterator_that_nobody_holds_ends_its_thread(own_threads: Find):
    iterator = gm.feed(loader(1000))
    next(iterator)
    (thread,) = own_threads()
    gone = weakref.ref(iterator)

    del iterator
    gc.collect()
    thread.join(PATIENCE_S)

    assert gone() is None
    assert not thread.is_alive()


def test_the_end_holds_on_to_nothing_of_who_met_it():
    class Model:
        """Something large."""

    def train(iterator: Any) -> weakref.ref[Model]:
        model = Model()
        with suppress(StopIteration):
            while True:
                next(iterator)
        return weakref.ref(model)

    with gm.feed(loader()) as iterator:
        gone = train(iterator)
        gc.collect()
        assert gone() is None


def test_a_step_that_hangs_does_not_keep_one_from_closing(own_threads: Find):
    is_inside, may_end = threading.Event(), threading.Event()

    def step(x: Any) -> Any:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        return x

    iterator = gm.feed(Watched(Stepwise(step)))
    iterator.start_prefetch()
    assert is_inside.wait(PATIENCE_S)
    iterator.close()
    assert not may_end.is_set()

    may_end.set()


def test_what_was_fed_is_counted():
    with gm.feed(loader()) as iterator:
        assert iterator.stats().elements == 0
        list(iterator)
        stats = iterator.stats()

    assert stats.elements == 3
    assert 0 <= stats.waited_s <= stats.elapsed_s
    assert stats.summary().startswith("waited for data ")


# As a step of a dataset, as in Grain


def pipelines(module: Any) -> dict[str, Any]:
    """Give the same pipelines of Grain and of ours."""
    plain = module.MapDataset.range(10).map(np.int32)
    tree = plain.map(lambda x: {"x": x, "y": [np.full(3, x, np.float32)]})
    return {
        "elements": plain.to_iter_dataset(),
        "batches": tree.to_iter_dataset().batch(4),
        "full_batches": tree.to_iter_dataset().batch(4, drop_remainder=True),
        "shuffled": tree.seed(3).shuffle().batch(3).to_iter_dataset(),
        "epochs": tree.batch(4).repeat(2).to_iter_dataset(),
        "filtered": plain.filter(lambda x: x % 3 > 0).to_iter_dataset().map(lambda x: x + 1),
    }


@pytest.mark.parametrize("kind", list(pipelines(gm)))
@pytest.mark.parametrize("sizes", [(4, 2), (1, 1), (0, 0)], ids=str)
def test_device_put_gives_what_that_of_grain_gives(kind: str, sizes: tuple[int, int]):
    device, (on_host, on_device) = jax.devices()[0], sizes
    theirs = list(grain.experimental.device_put(pipelines(grain)[kind], device))
    ds = gm.experimental.device_put(
        pipelines(gm)[kind], device, cpu_buffer_size=on_host, device_buffer_size=on_device
    )

    with iter(ds) as iterator:
        ours = list(iterator)

    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (mine.dtype, mine.sharding) == (other.dtype, other.sharding)
        assert np.asarray(mine).tolist() == np.asarray(other).tolist()


@pytest.mark.parametrize("kind", list(pipelines(gm)))
def test_device_put_goes_on_from_any_state(kind: str):
    ds = gm.experimental.device_put(pipelines(gm)[kind], jax.devices()[0])
    with iter(ds) as iterator:
        states = [iterator.get_state()]
        elements: list[Any] = []
        for element in iterator:
            elements += lists([element])
            states.append(iterator.get_state())

    for count, state in enumerate(states):
        with iter(ds) as resumed:
            resumed.set_state(json.loads(json.dumps(state)))
            assert lists(resumed) == elements[count:]


# What cannot work


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "cpu"}, "`device` must be a device, a sharding, a mesh .* got 'cpu'"),
        ({"device": {"x": 0}}, "`device` must be .* got 0"),
        ({"spec": jax.sharding.PartitionSpec("data")}, "`spec` says how a mesh is used"),
        ({"ahead": -1}, "`ahead` must be at least 0, got -1"),
        ({"ahead": 1.5}, "`ahead` must be an integer"),
        ({"last": "keeps"}, '`last` must be "keep", "drop" or "pad", got \'keeps\''),
        ({"others": "drop"}, '`others` must be "raise" or "pass", got \'drop\''),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"batch_size": "4"}, "`batch_size` must be an integer"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        gm.feed(loader(), **arguments)


@pytest.mark.parametrize("spec", ["data", ("data",), {"x": None, "y": 1}], ids=str)
def test_a_spec_that_is_none_is_refused(spec: Any):
    mesh = jax.make_mesh((1,), ("data",))

    with pytest.raises(PlanTypeError, match=r"`spec` must be a `jax\.sharding\.PartitionSpec`"):
        gm.feed(loader(), mesh, spec)


@pytest.mark.parametrize("data", [[1, 2], 5, None, iter([1])], ids=["list", "int", "none", "iter"])
def test_data_without_a_state_are_refused(data: Any):
    with pytest.raises(PlanTypeError, match="`data` must be a loader, a dataset, or an iterator"):
        gm.feed(data)


@EACH_AHEAD
def test_a_tree_of_places_that_does_not_fit_is_explained(ahead: int):
    device = jax.devices()[0]

    with pytest.raises(FeedError, match="does not begin as the batch does"):
        first(of({"x": np.ones(2)}), {"x": device, "y": device}, ahead=ahead)
    with pytest.raises(FeedError, match="does not begin as the batch does"):
        first(of(np.ones(2)), [device], ahead=ahead)
