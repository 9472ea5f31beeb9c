"""A plan that cannot be sent to a worker: which step, which part of it, and what to do."""

import functools
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._data.sampling.samplers import SequentialSampler
from gristmill._engine.executors.serialization.explain import (
    explain_unsendable,
    explain_unsendable_value,
)
from gristmill._engine.executors.serialization.serialize import dump_plan
from gristmill._plan.build import with_operation
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill.errors import PlanTypeError
from gristmill.options import MultiprocessingOptions, NoSharding
from gristmill.transforms import Batch, Map

REMEDY = " inside the transform, or in `worker_init_fn`, or use `worker_count=0`."
LOCK = threading.Lock()


def _plan(*operations: Any, source: Any = (1, 2, 3), sampler: Any = None) -> Node:
    plan: Node = SampleNode(
        site="train.py:2",
        parent=SourceNode(site="train.py:1", source=source),
        sampler=sampler or SequentialSampler(3, NoSharding()),
        shard=NoSharding(),
    )
    for number, operation in enumerate(operations):
        plan = with_operation(plan, operation, number=number, site=f"train.py:{10 + number}")
    return plan


def _explained(plan: Node) -> str:
    failure: Exception | None = None
    try:
        dump_plan(plan)
    except Exception as error:
        failure = error
    assert failure is not None
    explained = explain_unsendable(plan, failure)
    assert isinstance(explained, PlanTypeError)
    assert explained.__cause__ in (None, failure)  # one traceback is enough if it names the value
    return str(explained)


class Holder:
    """Holds something that cannot be pickled."""

    def __init__(self, held: Any) -> None:
        self.fine = np.zeros(3)
        self.held = held


def _transform(attribute: str, value: Any) -> Map:
    class Decode(Map):
        def map(self, element: Any) -> Any:
            return element

    decode = Decode()
    setattr(decode, attribute, value)
    return decode


def test_a_lock_in_a_transform_is_named_with_step_line_and_remedy():
    plan = _plan(lambda x: x, _transform("lock", threading.Lock()), Batch(2))

    assert _explained(plan) == (
        "Map Decode, added at train.py:11, cannot be sent to a worker: `self.lock` is a "
        "_thread.lock. Make it on first use" + REMEDY
    )


def _socket() -> socket.socket:
    with socket.socket() as closed:
        return closed


@pytest.mark.parametrize(
    ("make", "reported"),
    [
        (lambda: (n for n in "abc"), "`self.it` is a generator."),
        (lambda: Holder(threading.Lock()), "`self.it.held` is a _thread.lock."),
        (lambda: [1, {"a": threading.Lock()}], '`self.it[1]["a"]` is a _thread.lock.'),
        (lambda: {("a", 1): threading.Lock()}, "`self.it[('a', 1)]` is a _thread.lock."),
        (
            lambda: functools.partial(print, threading.Lock()),
            "`self.it.args[0]` is a _thread.lock.",
        ),
        (
            lambda: functools.partial(dict, end=threading.Lock()),
            '`self.it.keywords["end"]` is a _thread.lock.',
        ),
        (lambda: np.array([None, threading.Lock()]), "`self.it[1]` is a _thread.lock."),
        (lambda: threading.local(), "`self.it` is a _thread._local."),
        (_socket, "`self.it` is a socket.socket."),
    ],
    ids=["generator", "nested", "list", "dict", "partial", "keyword", "array", "local", "socket"],
)
def test_the_part_that_cannot_be_sent_is_named_by_the_way_to_it(
    make: Callable[[], Any], reported: str
):
    assert reported in _explained(_plan(_transform("it", make())))


@pytest.mark.parametrize("mode", ["r", "rb", "w"])
def test_an_open_file_is_called_one(mode: str, tmp_path: Path):
    path = tmp_path / "x.txt"
    path.write_text("text")

    with path.open(mode) as file:
        message = _explained(_plan(_transform("file", file)))

    assert "`self.file` is an open file (_io." in message


def test_a_variable_of_an_enclosing_function_goes_by_its_name():
    handle = threading.Lock()

    def decode(x: Any) -> Any:
        return handle, x

    assert "Map decode, added at train.py:10, cannot be sent to a worker: `handle` is a" in (
        _explained(_plan(decode))
    )


def test_a_global_goes_by_its_name():
    namespace: dict[str, Any] = {"LOCK": LOCK, "__name__": "__main__"}
    exec("def decode(x):\n    return [LOCK for _ in x]", namespace)

    assert "`LOCK` is a _thread.lock" in _explained(_plan(namespace["decode"]))


def test_a_default_goes_by_the_name_of_its_parameter():
    def decode(x: Any, y: Any = 1, lock: Any = LOCK, *, other: Any = None) -> Any:
        return x, y, lock, other

    assert "`lock` is a _thread.lock" in _explained(_plan(decode))


def test_a_default_of_a_keyword_goes_by_its_name():
    def decode(x: Any, *, lock: Any = LOCK) -> Any:
        return x, lock

    assert "`lock` is a _thread.lock" in _explained(_plan(decode))


def test_an_attribute_of_a_class_goes_by_both_names():
    class Decode(Map):
        lock: ClassVar[Any] = threading.Lock()

        def map(self, element: Any) -> Any:
            return element

    assert "Decode.lock` is a _thread.lock" in _explained(_plan(Decode()))


def test_a_method_that_closes_over_something_is_seen_through():
    handle = threading.Lock()

    class Decode(Map):
        def map(self, element: Any) -> Any:
            return handle, element

    assert "`handle` is a _thread.lock" in _explained(_plan(Decode()))


def test_what_getstate_leaves_out_is_not_blamed():
    class Decode(Map):
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.pipe = (n for n in "")

        def __getstate__(self) -> dict[str, Any]:
            return {name: value for name, value in vars(self).items() if name != "lock"}

        def map(self, element: Any) -> Any:
            return element

    assert "`self.pipe` is a generator." in _explained(_plan(Decode()))


def test_what_the_object_reports_itself_is_in_the_message():
    class Connection:
        def __reduce__(self) -> Any:
            raise ValueError("connections stay here")

    message = _explained(_plan(_transform("connection", Connection())))

    assert "`self.connection` is a " in message
    assert "and pickling it raised ValueError: connections stay here. " in message


def test_a_source_is_named_as_such():
    class Files:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return index

    message = _explained(_plan(source=Files()))

    assert message == (
        "Files(<3 records>), added at train.py:1, cannot be sent to a worker: `data_source.lock` "
        "is a _thread.lock. Make it on first use inside the source, or in `worker_init_fn`, or "
        "use `worker_count=0`."
    )


def test_a_record_in_a_long_list_is_found():
    records: list[Any] = list(range(100_000))
    records[77_777] = threading.Lock()

    assert "`data_source[77777]` is a _thread.lock." in _explained(_plan(source=records))


def test_a_sampler_is_named_as_such():
    class Sampler(Sequence[Any]):
        lock = None

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            raise IndexError

    sampler = Sampler()
    vars(sampler)["lock"] = threading.Lock()

    message = _explained(_plan(sampler=sampler))

    assert "`sampler.lock` is a _thread.lock. Make it on first use inside the sampler" in message


def test_the_function_of_a_batch_is_looked_into():
    lock = threading.Lock()

    def collate(elements: Any) -> Any:
        return lock, elements

    message = _explained(_plan(Batch(2, batch_fn=collate)))

    assert message.startswith("Batch(2), added at train.py:10, cannot be sent to a worker: `lock` ")


def test_cycles_end():
    ring: list[Any] = [1]
    ring += [ring, threading.Lock()]

    assert "`self.ring[2]` is a _thread.lock." in _explained(_plan(_transform("ring", ring)))


def test_a_ring_of_objects_ends():
    first, second = Holder(None), Holder(None)
    first.held, second.held = second, first
    vars(second)["lock"] = threading.Lock()

    assert ".held.lock` is a _thread.lock." in _explained(_plan(_transform("first", first)))


def test_what_is_nested_too_deeply_is_reported_to_be():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    message = _explained(_plan(_transform("deep", deep)))
    while deep:  # or freeing it would overflow the stack
        deep = deep.pop()

    assert "Map Decode, added at train.py:10, cannot be sent to a worker: `self.deep" in message
    assert "recursion" in message


def test_if_no_part_fails_alone_the_error_itself_is_reported():
    message = str(explain_unsendable(_plan(), MemoryError("no room")))

    assert message.startswith("The pipeline cannot be sent to a worker: MemoryError: no room.")


def test_an_argument_that_is_no_node_is_explained_as_well():
    handle = threading.Lock()

    def init(worker: int, count: int) -> Any:
        return handle, worker, count

    error = TypeError("cannot pickle '_thread.lock' object")
    explained = explain_unsendable_value("worker_init_fn", init, error)

    assert str(explained).startswith(
        "`worker_init_fn` cannot be sent to a worker: `handle` is a _thread.lock. "
    )
    assert explained.__cause__ is None


def test_the_source_of_a_dataset_is_named_too():
    dataset = MapDataset.source([1, LOCK]).map(str).to_iter_dataset().batch(2)
    message = _explained(dataset._plan_node)
    assert message.startswith("list(<2 records>), added at ")
    assert "cannot be sent to a worker: `data_source[1]` is a _thread.lock" in message


def test_the_error_of_a_transform_that_cannot_be_pickled_has_one_traceback():
    lock = threading.Lock()
    dataset = MapDataset.range(9).map(lambda element: (lock, element)[1]).to_iter_dataset()
    workers = MultiprocessingOptions(num_workers=1)
    with pytest.raises(PlanTypeError, match=r"`lock` is a _thread\.lock") as caught:
        next(iter(dataset.mp_prefetch(workers)))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
