import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, InMemoryDataSource, SequentialSampler
from gristmill import SharedMemoryDataSource as Shared
from gristmill.errors import ClosedError, PlanError, SourceError

SHM = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="looks into /dev/shm")


PREFIX = f"gristmill-test-{os.getpid()}-"  # other processes may run these tests at the same time


@pytest.fixture
def name() -> str:
    return PREFIX + uuid.uuid4().hex


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    gc.collect()
    descriptors = _open_descriptors()
    yield
    gc.collect()
    assert not list(SHM.glob(f"{PREFIX}*"))
    # Not `==`: what an earlier test left to the garbage collector may be closed during this one.
    assert _open_descriptors() <= descriptors


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def run_python(program: str, *arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


ATTACH = """
    import sys, gristmill
    with gristmill.SharedMemoryDataSource(name=sys.argv[1]) as source:
        print([record for record in source])
"""


class Custom:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.value == self.value

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as mutable objects have it


@pytest.mark.parametrize(
    "record",
    [
        None,
        0,
        2**100,
        1.5,
        "string",
        b"\0bytes\0",
        (1, [2, {"a": {3}}]),
        Custom(4),
        "",
        b"x" * 10**6,
    ],
    ids=lambda record: type(record).__name__,
)
def test_any_picklable_record_comes_back_equal(record: Any):
    with Shared([record, "other", record]) as source:
        assert source[0] == record
        assert source[2] == record
        assert source[1] == "other"


def test_arrays_come_back_equal_and_as_copies():
    with Shared([{"x": np.arange(3)}]) as source:
        source[0]["x"][:] = 9
        assert source[0]["x"].tolist() == [0, 1, 2]


def test_an_empty_sequence_is_an_empty_source():
    with Shared([]) as source:
        assert len(source) == 0
        assert list(source) == []


def test_it_counts_and_finds_records():
    with Shared(["a", "b", "a"]) as source:
        assert source.count("a") == 2
        assert source.index("b") == 1
        with pytest.raises(ValueError, match=r"^'z' is not among the records\.$"):
            source.index("z")


@pytest.mark.parametrize("position", [-1, 2, 2**63])
def test_a_position_out_of_bounds_is_an_error(position: int):
    with (
        Shared(["a", "b"]) as source,
        pytest.raises(IndexError, match=rf"^`position` must be in \[0, 2\), got {position}\.$"),
    ):
        source[position]


def test_numpy_integers_are_positions():
    with Shared(["a", "b"]) as source:
        assert source[np.int64(1)] == "b"


def test_a_loader_reads_it():
    with Shared(range(5)) as source:
        loader = DataLoader(data_source=source, sampler=SequentialSampler(5), operations=[Batch(2)])
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


def test_grains_other_name_is_the_same_class():
    assert InMemoryDataSource is Shared


def test_another_process_attaches_by_the_users_name(name: str):
    with Shared(["a", {"b": 1}], name=name) as source:
        assert source.name == name
        assert run_python(ATTACH, name) == "['a', {'b': 1}]"


def test_another_process_attaches_to_anonymous_memory_by_its_name():
    with Shared(["a", {"b": 1}]) as source:
        assert run_python(ATTACH, source.name) == "['a', {'b': 1}]"


@pytest.mark.parametrize("is_named", [True, False])
def test_another_process_attaches_by_unpickling(name: str, is_named: bool):
    program = "import sys, pickle; print(list(pickle.load(sys.stdin.buffer)))"
    with Shared(["a", 2], name=name if is_named else None) as source:
        assert run_python(program, stdin=pickle.dumps(source)) == "['a', 2]"
        assert list(source) == ["a", 2]  # still, after the other process has ended


def test_a_pickled_source_does_not_contain_its_records():
    with Shared([b"x" * 100_000]) as source:
        assert len(pickle.dumps(source)) < 500


def test_a_copy_reads_the_same_memory():
    with Shared(["a"]) as source:
        assert copy.copy(source)[0] == copy.deepcopy(source)[0] == "a"


def test_the_exit_of_another_process_does_not_remove_the_name(name: str):
    with Shared(["a"], name=name):
        run_python(
            "import sys, gristmill; gristmill.SharedMemoryDataSource(name=sys.argv[1])", name
        )
        assert (SHM / name).exists()


def test_the_exit_of_the_creator_removes_the_name(name: str):
    program = """
        import os, sys, gristmill
        kept = gristmill.SharedMemoryDataSource(["a"], name=sys.argv[1])
        print(os.path.exists("/dev/shm/" + sys.argv[1]))
    """
    assert run_python(program, name) == "True"
    assert not (SHM / name).exists()


def test_the_exit_of_a_forked_child_does_not_remove_the_name(name: str):
    program = """
        import os, sys, gristmill
        kept = gristmill.SharedMemoryDataSource(["a"], name=sys.argv[1])
        child = os.fork()
        if not child:
            sys.exit()  # runs finalizers and exit handlers
        os.waitpid(child, 0)
        print(gristmill.SharedMemoryDataSource(name=sys.argv[1])[0])
    """
    assert run_python(program, name) == "a"


def test_collecting_the_creators_source_removes_the_name(name: str):
    source = Shared(["a"], name=name)
    assert (SHM / name).exists()
    del source
    gc.collect()
    assert not (SHM / name).exists()


def test_after_unlink_no_process_can_attach_but_mappings_stay_valid(name: str):
    source = Shared(["a"], name=name)
    attached = Shared(name=name)
    source.unlink()
    assert source[0] == attached[0] == "a"
    with pytest.raises(
        SourceError, match=rf"^There is no shared memory named '{name}' \(.*\)\. Check"
    ):
        Shared(name=name)
    source.unlink()  # a second call does nothing


def test_a_process_that_attached_can_unlink(name: str):
    source = Shared(["a"], name=name)
    Shared(name=name).unlink()
    assert not (SHM / name).exists()
    assert source[0] == "a"


def test_memory_left_by_a_killed_process_can_be_removed_as_the_error_suggests(name: str):
    program = """
        import os, sys, gristmill
        kept = gristmill.SharedMemoryDataSource(["a"], name=sys.argv[1])
        sys.stdout.flush()
        os._exit(0)  # like a kill: no cleanup
    """
    run_python(program, name)
    try:
        with pytest.raises(PlanError, match="`unlink` it first"):
            Shared(["b"], name=name)
        Shared(name=name).unlink()
        assert not (SHM / name).exists()
    finally:
        (SHM / name).unlink(missing_ok=True)


def test_the_name_of_removed_memory_never_refers_to_other_memory():
    removed = Shared(["old"])
    name = removed.name
    removed.unlink()
    with Shared(["new"]), pytest.raises(SourceError, match="no shared memory named"):
        Shared(name=name)
    removed.close()


def test_a_pickle_of_removed_memory_never_refers_to_other_memory():
    with Shared(["old"]) as removed:
        pickled = pickle.dumps(removed)
    with Shared(["new"]), pytest.raises(SourceError, match="no shared memory named"):
        pickle.loads(pickled)


def test_reading_from_a_closed_source_is_an_error():
    source = Shared(["a"])
    source.close()
    source.close()
    with pytest.raises(ClosedError, match=r"^This shared source was closed\. Attach to it again"):
        source[0]
    assert len(source) == 1


def test_closing_does_not_unmap_other_sources(name: str):
    with Shared(["a"], name=name) as source:
        attached = Shared(name=name)
        source.close()
        assert attached[0] == "a"


def test_creating_under_a_name_that_exists_is_an_error_and_keeps_its_records(name: str):
    with Shared(["a"], name=name) as source:
        message = rf"^Shared memory named '{name}' exists\. Attach with `name` alone, `unlink` it"
        with pytest.raises(PlanError, match=message):
            Shared(["b"], name=name)
        assert Shared(name=name)[0] == source[0] == "a"


def test_attaching_to_a_name_that_does_not_exist_is_an_error(name: str):
    with pytest.raises(
        SourceError, match=rf"named '{name}' \(No such file or directory\)\. Check that the"
    ):
        Shared(name=name)


def test_attaching_to_the_memory_of_a_process_that_has_ended_is_an_error():
    program = "import gristmill; print(gristmill.SharedMemoryDataSource([1]).name)"
    removed = run_python(program)
    with pytest.raises(
        SourceError, match="Check that the process that created it is still running"
    ):
        Shared(name=removed)


def test_passing_neither_elements_nor_a_name_is_an_error():
    with pytest.raises(
        PlanError, match=r"^Pass `elements` to create a shared source, or `name` to"
    ):
        Shared()


def test_a_record_that_cannot_be_pickled_leaves_nothing_behind(name: str):
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        Shared([1, lambda: None], name=name)
    assert not (SHM / name).exists()


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * 7])
def test_attaching_to_memory_that_is_not_a_source_is_an_error(name: str, content: bytes):
    (SHM / name).write_bytes(content)
    try:
        with pytest.raises(SourceError):
            Shared(name=name)
    finally:
        (SHM / name).unlink()


@pytest.mark.parametrize("wrong", ["no/such/folder", 3])
def test_an_invalid_name_is_an_error_that_names_the_argument(wrong: Any):
    with pytest.raises(PlanError, match="name"):
        Shared(["a"], name=wrong)


def test_records_that_do_not_fit_are_an_error_and_leave_nothing_behind(name: str):
    program = """
        import resource, signal, sys, gristmill
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # like a full /dev/shm: writing fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            gristmill.SharedMemoryDataSource([b"x" * 60_000] * 3, name=sys.argv[1])
        except gristmill.errors.SourceError as error:
            print(error)
    """
    assert run_python(program, name).startswith("The records do not fit into shared memory (")
    assert not (SHM / name).exists()


def test_its_str_contains_its_name_and_its_repr_does_not(name: str):
    with Shared(["a", "b"], name=name) as source:
        assert repr(source) == "InMemoryDataSource(<2 records>)"
        assert str(source) == f"InMemoryDataSource(name={name}, len=2)"
