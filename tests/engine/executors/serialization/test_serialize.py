"""What travels between a parent and its workers arrives as it was, of the same classes."""

import abc
import dataclasses
import enum
import gc
import io
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import pytest

from gristmill._engine.executors.serialization.serialize import Sender, dump, dump_plan, load
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.errors import WorkerError
from gristmill.sources import ArraySource

InWorker = Callable[..., Any]
T = TypeVar("T")

SMALL_BUFFERS = TuningPolicy(in_band_bytes=1024)


def _plain() -> Any:
    class Box:
        size: ClassVar[list[int]] = [3]

        def __init__(self, value: int) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Box) and self.value == other.value

    return Box(1)


def _dataclass() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Box:
        value: int
        more: list[int] = dataclasses.field(default_factory=list)

    return Box(1, [2])


def _slots() -> Any:
    @dataclasses.dataclass(slots=True)
    class Box:
        value: int

    return Box(1)


def _slots_and_dict() -> Any:
    class Base:
        __slots__ = ("__weakref__", "a")

        def __init__(self) -> None:
            self.a = 1

    class Box(Base):
        def __init__(self) -> None:
            super().__init__()
            self.b = 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Box) and (self.a, self.b) == (other.a, other.b)

    return Box()


def _named_tuple() -> Any:
    class Box(NamedTuple):
        value: int
        other: str = "x"

    return Box(1)


def _enum() -> Any:
    class Color(enum.Enum):
        RED = 1

        def shout(self) -> str:
            return self.name

    return Color.RED


def _flag() -> Any:
    class Bits(enum.IntFlag):
        A = 1
        B = 2

    return Bits.A | Bits.B


def _abstract() -> Any:
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> int: ...

    class Square(Shape):
        def area(self) -> int:
            return 4

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Shape) and other.area() == 4

    return Square()


def _generic() -> Any:
    @dataclasses.dataclass
    class Box(Generic[T]):
        value: T

    return Box[int](1)


def _with_metaclass() -> Any:
    class Meta(type):
        def hello(cls) -> str:
            return cls.__name__

    class Box(metaclass=Meta):
        def __eq__(self, other: object) -> bool:
            return type(self) is type(other)

    return Box()


def _self_referencing() -> Any:
    class Node:
        root: "Node"

        def __init__(self) -> None:
            super().__init__()
            self.kind = Node

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Node) and other.kind is Node and self.kind is Node

    Node.root = Node()
    return Node()


def _nested_class() -> Any:
    class Outer:
        @dataclasses.dataclass
        class Inner:
            value: int

    return Outer.Inner(1)


def _dict_subclass() -> Any:
    class Record(dict[str, int]):
        pass

    return Record(a=1)


KINDS = [
    _plain, _dataclass, _slots, _slots_and_dict, _named_tuple, _enum, _flag, _abstract, _generic,
    _with_metaclass, _self_referencing, _nested_class, _dict_subclass,
]  # fmt: skip


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_comes_back_is_of_the_very_class_that_was_sent(
    make: Callable[[], Any], in_worker: InWorker
):
    thing = make()

    back = in_worker(lambda thing: {"x": thing}, thing)["x"]

    assert type(back) is type(thing)
    assert back == thing


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_the_class_is_not_touched_when_an_instance_comes_back(
    make: Callable[[], Any], in_worker: InWorker
):
    thing = make()
    dump_plan(thing)  # sending, as any pickling, may note the names of its slots in a class
    before = dict(vars(type(thing)))

    in_worker(lambda thing: [thing, type(thing)], thing)

    after = vars(type(thing))
    assert list(after) == list(before)
    assert all(after[name] is value for name, value in before.items())


def test_a_class_that_the_worker_makes_itself_comes_by_value_as_one_class(in_worker: InWorker):
    def make(value: int) -> Any:
        found: Any = globals().get("MadeHere")
        if found is None:
            found = globals()["MadeHere"] = type("MadeHere", (), {"answer": 42})
        made: Any = found()
        made.value = value
        return made

    first, second = in_worker(lambda: [make(1), make(2)])

    assert (first.answer, first.value, second.value) == (42, 1, 2)
    assert type(first) is type(second)


def test_a_worker_with_workers_of_its_own_mixes_up_no_classes(in_worker: InWorker):
    class Ours:
        pass

    def work(ours: Any) -> Any:
        class Own:
            pass

        dump_plan([Own, ours])  # as it would be sent on to the worker's own workers
        return ours, Own()

    ours, own = in_worker(work, Ours())

    assert type(ours) is Ours
    assert type(own).__name__ == "Own"


def test_a_pickled_plan_keeps_its_classes_alive_and_nothing_else_does():
    def make() -> Any:
        class Box:
            pass

        return dump_plan(Box), weakref.ref(Box)

    payload, box = make()
    gc.collect()
    assert box() in payload.classes

    del payload
    gc.collect()
    assert box() is None


def test_a_class_from_a_submodule_that_is_not_loaded_goes_by_its_name():
    """In a fresh interpreter: a test may have loaded it."""
    program = """
import sys
import numpy as np
from gristmill._engine.executors.serialization.serialize import dump_plan
print("numpy.rec" in sys.modules, len(dump_plan(np.recarray)) < 200)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("False True\n", "")


SCRIPT = '''
import pickle, subprocess, sys
from dataclasses import dataclass
from enum import Enum
from gristmill._engine.executors.serialization.serialize import dump_plan, load

class Color(Enum):
    RED = 1

@dataclass
class Box:
    value: int
    color: Color

def double(box):
    return Box(box.value * 2, Color.RED)

CHILD = """
import sys
from gristmill._engine.executors.serialization.serialize import dump, load
function, argument = load(sys.stdin.buffer.read())
sys.stdout.buffer.write(dump([function(argument)]))
"""
before = dict(vars(Box))
payload = dump_plan((double, Box(21, Color.RED)))
done = subprocess.run([sys.executable, "-c", CHILD], input=payload, capture_output=True)
sys.stderr.write(done.stderr.decode())
[back] = load(done.stdout)
assert type(back) is Box and back.color is Color.RED, type(back)
assert all(vars(Box)[name] is value for name, value in before.items())
print(back)
'''


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_classes_of_a_script_without_a_main_guard_come_back_as_themselves(way: str, tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)] if way == "file" else [sys.executable, "-"]
    given = None if way == "file" else SCRIPT

    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("Box(value=42, color=<Color.RED: 1>)\n", "")


ARRAYS = {
    "contiguous": np.arange(600.0).reshape(20, 30),
    "fortran": np.asfortranarray(np.arange(600.0).reshape(20, 30)),
    "sliced": np.arange(1200.0).reshape(40, 30)[::2],
    "transposed": np.arange(600).reshape(5, 4, 30).transpose(1, 0, 2),
    "reversed": np.arange(600)[::-1],
    "big_endian": np.arange(600, dtype=">i4"),
    "big_endian_sliced": np.arange(600, dtype=">f8")[::3],
    "broadcast": np.broadcast_to(np.arange(30), (20, 30)),
    "bfloat16": np.arange(600).astype(ml_dtypes.bfloat16),
    "bfloat16_transposed": np.ones((30, 20), ml_dtypes.bfloat16).T,
    "float8": np.arange(6000).astype(ml_dtypes.float8_e5m2)[::2],
    "times": np.arange(600).astype("M8[s]"),
    "a_time": np.array("2020-01-01", "M8[D]"),
    "structured": np.zeros(300, [("t", "M8[s]"), ("x", ">f4")]),
    "records": np.zeros(300, [("i", ">i8"), ("x", ">f4")]).view(np.recarray),
    "text": np.array(["ab", "c"]),
    "bytes": np.array([b"ab", b"c"]),
    "objects": np.array([{"a": 1}, None, "x"], object),
    "strings": np.array(["a", "bb"], np.dtypes.StringDType()),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 3), ">i2"),
    "no_bytes": np.zeros(3, "V0"),
    "bool": np.ones(3, bool),
}


@pytest.mark.parametrize("is_writeable", [True, False], ids=["writeable", "read_only"])
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_arrives_in_dtype_shape_content_and_writability(
    name: str, is_writeable: bool, in_worker: InWorker
):
    array = ARRAYS[name] if name == "broadcast" else ARRAYS[name].view()
    array.flags.writeable = is_writeable and name != "broadcast"

    there_and_back, flags = in_worker(lambda x: (x, x.flags.writeable), array)

    assert type(there_and_back) is type(array)
    assert there_and_back.dtype == array.dtype
    assert there_and_back.dtype.byteorder == array.dtype.byteorder
    assert there_and_back.shape == array.shape
    assert there_and_back.tolist() == array.tolist()
    assert flags == array.flags.writeable
    assert there_and_back.flags.writeable == array.flags.writeable


@pytest.mark.parametrize("name", [name for name, array in ARRAYS.items() if array.nbytes > 1024])
def test_the_memory_of_a_large_array_goes_out_of_band(name: str):
    payload, buffers = Sender(SMALL_BUFFERS).dump({"x": ARRAYS[name]})

    assert len(payload) < 500
    assert [buffer.raw().nbytes for buffer in buffers] == [ARRAYS[name].nbytes]


def test_a_small_array_stays_in_the_pickle():
    limit = SMALL_BUFFERS.in_band_bytes
    small, large = np.zeros(limit - 1, np.uint8), np.zeros(limit, np.uint8)

    payload, buffers = Sender(SMALL_BUFFERS).dump([small, large])

    assert [buffer.raw().nbytes for buffer in buffers] == [limit]
    assert load(payload, buffers)[0].shape == small.shape


def test_a_read_only_array_stays_so_in_writeable_memory():
    array = np.zeros(1000)
    array.flags.writeable = False
    payload, buffers = Sender(SMALL_BUFFERS).dump(array)

    back = load(payload, [bytearray(buffer.raw()) for buffer in buffers])

    assert not back.flags.writeable


def test_a_memmap_in_an_element_comes_as_its_content(tmp_path: Path, in_worker: InWorker):
    def read(path: str) -> Any:
        return np.memmap(path, np.int64, mode="r")[2:5]

    (tmp_path / "x.bin").write_bytes(np.arange(10).tobytes())

    back = in_worker(read, str(tmp_path / "x.bin"))

    assert (type(back), back.tolist(), back.flags.writeable) == (np.memmap, [2, 3, 4], False)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc"),
        memoryview(bytearray(b"abc")),
        memoryview(b"abcdef")[::2],
        np.arange(6).reshape(2, 3).data,
    ],
    ids=["read_only", "writeable", "strided", "numbers"],
)
def test_a_memoryview_stays_one(view: memoryview, in_worker: InWorker):
    back = in_worker(lambda view: view, view)

    assert isinstance(back, memoryview)
    assert (back.tolist(), back.format) == (view.tolist(), view.format)
    assert back.readonly == view.readonly


def test_plain_elements_never_need_cloudpickle():
    sender = Sender(SMALL_BUFFERS)
    sender.dump({"x": np.zeros(3), "y": ["text", 1, None]})

    assert not sender._needs_cloudpickle


def test_what_failed_once_is_not_tried_again():
    class Box:
        tries = 0

        def __reduce__(self) -> Any:
            Box.tries += 1
            return Box, ()

    sender = Sender(SMALL_BUFFERS)
    sender.dump(Box())  # once each way
    sender.dump(Box())

    assert Box.tries == 3


def test_the_buffers_of_a_failed_try_are_not_sent():
    class Box:
        pass

    _, buffers = Sender(SMALL_BUFFERS).dump([np.zeros(1000), Box()])

    assert len(buffers) == 1


def _locked() -> Any:
    class Locked:
        def __init__(self) -> None:
            self.parts = [1, threading.Lock()]

    return Locked()


class Frame(NamedTuple):
    image: Any
    name: str


@pytest.mark.parametrize(
    ("element", "reported"),
    [
        ({"x": [1, 2, 3, (n for n in "")]}, '`batch["x"][3]` is a generator.'),
        ({"x": (threading.Lock(), 1)}, '`batch["x"][0]` is a _thread.lock.'),
        ({1: {"a": threading.Lock()}}, '`batch[1]["a"]` is a _thread.lock.'),
        ([_locked()], "`batch[0].parts[1]` is a _thread.lock."),
        (np.array([1, threading.Lock()], object), "`batch[1]` is a _thread.lock."),
        (Frame(threading.Lock(), "x"), "`batch.image` is a _thread.lock."),
        (threading.Lock(), "`batch` is a _thread.lock."),
        (sys._getframe(), "`batch` is a frame."),
        (
            {"x": {1, 2}, "y": io.FileIO(0, closefd=False)},
            '`batch["y"]` is an open file (_io.FileIO).',
        ),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place_and_a_way_out(element: Any, reported: str):
    with pytest.raises(WorkerError) as raised:
        Sender(SMALL_BUFFERS).dump(element, name="batch")

    assert reported in str(raised.value)
    assert str(raised.value).endswith("or use `worker_count=0`.")
    assert raised.value.__suppress_context__  # the message of pickle does not help


def test_one_bad_record_among_very_many_is_found_quickly():
    records: list[Any] = list(range(100_000))
    records[77_777] = threading.Lock()

    with pytest.raises(WorkerError, match=r"`batch\[77777\]` is a _thread.lock"):
        Sender(SMALL_BUFFERS).dump(records, name="batch")


def test_the_reason_is_in_the_message_if_the_object_knows_it():
    class Connection:
        def __reduce__(self) -> Any:
            raise ValueError("connections stay here")

    with pytest.raises(WorkerError) as raised:
        Sender(SMALL_BUFFERS).dump({"c": Connection()}, name="batch")

    assert "ValueError: connections stay here" in str(raised.value)


def test_a_sender_goes_on_after_something_that_cannot_be_sent():
    sender = Sender(SMALL_BUFFERS)
    with pytest.raises(WorkerError):
        sender.dump(threading.Lock())

    payload, buffers = sender.dump([1, 2])

    assert load(payload, buffers) == [1, 2]


def test_an_open_file_is_refused_not_copied(tmp_path: Path):
    path = tmp_path / "x.txt"
    path.write_text("content")

    with path.open() as file, pytest.raises(Exception, match="open file"):
        dump_plan(lambda: file.read())


def test_standard_output_may_be_part_of_a_plan():
    assert load(dump_plan([sys.stderr, sys.stdout])) == [sys.stderr, sys.stdout]


def test_dump_yields_one_buffer():
    class Box:
        pass

    back, array = load(dump([Box, np.zeros(1000)]))

    assert back is Box
    assert array.shape == (1000,)


# Memory-mapped files in a plan


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"x" * 24 + np.arange(200_000.0).tobytes())
    return path


def _mapped(path: Path, **options: Any) -> Any:
    options = {"mode": "r", "offset": 24, "shape": (400, 500), **options}
    return np.memmap(path, np.float64, **options)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "memmap": lambda m: m,
    "plain": np.asarray,
    "rows": lambda m: np.asarray(m)[10:20],
    "rows_of_rows": lambda m: m[10:20][2:4],
    "reversed": lambda m: np.asarray(m)[::-1, ::-2],
    "transposed": lambda m: m.T,
    "fields": lambda m: np.asarray(m)[:, 3],
    "other_dtype": lambda m: np.asarray(m)[:, 3:4].T.view(np.int64)[:, 1:],
    "times": lambda m: np.asarray(m).view("M8[s]"),
    "bytes": lambda m: np.asarray(m).reshape(-1, order="A").view(np.uint8)[3:-1],
    "bfloat16": lambda m: np.asarray(m).reshape(-1, order="A").view(ml_dtypes.bfloat16),
    "one": lambda m: np.asarray(m)[3, 4:5],
    "broadcast": lambda m: np.broadcast_to(m[0], (7, 500)),
}


@pytest.mark.parametrize("options", [{}, {"mode": "r+"}, {"mode": "c"}, {"order": "F"}], ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_a_memory_mapped_file_is_opened_again_not_copied(
    name: str, options: dict[str, Any], file: Path, in_worker: InWorker
):
    array = VIEWS[name](_mapped(file, **options))
    buffers: list[Any] = []
    payload = dump_plan(array, buffer_callback=buffers.append)

    kind, writeable, content = in_worker(lambda x: (type(x), x.flags.writeable, x.tobytes()), array)

    assert len(payload) < 1000
    assert buffers == []
    assert (kind, writeable) == (type(array), array.flags.writeable)
    assert content == array.tobytes()


def test_what_a_worker_writes_does_not_reach_the_file(file: Path, in_worker: InWorker):
    def write(array: Any) -> float:
        array[:] = -1
        return float(array[0, 0])

    assert in_worker(write, _mapped(file, mode="r+")) == -1
    assert _mapped(file)[0, 1] == 1


def test_a_reopened_memmap_knows_its_file(file: Path):
    back = load(dump_plan(_mapped(file)))

    assert (str(back.filename), back.offset, back.mode) == (str(file), 24, "r")


def test_many_views_of_one_file_open_it_once(file: Path):
    rows = list(_mapped(file))

    back = load(dump_plan(rows))

    assert len({id(row.base) for row in back}) == 1
    assert back[3].tolist() == rows[3].tolist()


def test_a_reopened_array_can_be_sent_on(file: Path):
    array = _mapped(file)[5:]
    buffers: list[Any] = []

    twice = load(dump_plan(load(dump_plan(array)), buffer_callback=buffers.append))

    assert buffers == []
    assert np.array_equal(twice, array)


def test_changes_that_the_file_does_not_have_are_sent(file: Path, in_worker: InWorker):
    array = _mapped(file, mode="c")
    array[7, 7] = -5

    assert in_worker(lambda x: float(x[7, 7]), array) == -5


def test_changes_that_the_file_does_have_are_seen(file: Path, in_worker: InWorker):
    array = _mapped(file, mode="r+")
    array[7, 7] = -5

    assert in_worker(lambda x: float(x[7, 7]), array) == -5


def test_a_mapped_file_that_was_deleted_is_sent_by_its_content(file: Path, in_worker: InWorker):
    array = _mapped(file)
    file.unlink()

    assert in_worker(lambda x: float(x.sum()), array) == array.sum()


def test_an_array_source_over_a_huge_file_costs_nothing_to_send(
    tmp_path: Path, in_worker: InWorker
):
    path = tmp_path / "sparse.bin"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)  # a terabyte of holes
    source = ArraySource({"x": np.memmap(path, np.uint8, mode="r", shape=(1 << 30, 1 << 10))})

    length, row = in_worker(lambda source: (len(source), source[12345]["x"].sum()), source)

    assert (length, row) == (1 << 30, 0)
    assert len(dump_plan(source)) < 1000


class Forwarding:
    """Forwards attributes to a target, as lazy modules do."""

    def __init__(self, target: object) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class ForwardingSlots:
    """The same, without a `__dict__`."""

    __slots__ = ("target",)

    def __init__(self, target: object) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class ForwardingList(list[int]):
    """The same, for a class with items of its own."""

    target: object

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class ForwardingWithState(Forwarding):
    """Knows how to restore itself."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, is_restored=True)


@pytest.mark.parametrize("kind", [Forwarding, ForwardingSlots, ForwardingList])
def test_a_plan_may_hold_objects_that_forward_attributes(kind: Any):
    value = kind([1, 2, 3]) if kind is not ForwardingList else kind([4])
    value.target = [1, 2, 3]

    loaded = load(dump_plan(value))

    assert type(loaded) is kind
    assert loaded.target == [1, 2, 3]
    assert loaded.__len__() == (1 if kind is ForwardingList else 3)


def test_an_object_that_restores_itself_does_so():
    loaded = load(dump_plan(ForwardingWithState([1])))

    assert loaded.is_restored
    assert loaded.target == [1]
