"""Memory that several processes map, and that nobody can leave behind."""

import gc
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.executors.serialization.shared_memory import (
    ALIGNMENT,
    Lease,
    Mapping,
    address_of,
    aligned,
    create_memory,
)

SIZE = 10_000


@given(st.integers(0, 10**12))
def test_the_next_array_begins_on_a_cache_line_as_soon_as_there_is_one(num_bytes: int):
    assert aligned(num_bytes) % ALIGNMENT == 0
    assert 0 <= aligned(num_bytes) - num_bytes < ALIGNMENT


@pytest.fixture(params=["memfd", "file"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Yield the folder for temporary files, once with memfd and once where there is none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if request.param == "file":
        monkeypatch.delattr(os, "memfd_create")
    before = _descriptors()
    yield tmp_path
    assert _descriptors() == before
    assert list(tmp_path.iterdir()) == []


def _descriptors() -> set[str]:
    return {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def memory_at(mapping: Mapping) -> Any:
    return Lease(mapping.address, mapping.num_bytes).view()


def test_all_who_map_it_see_the_same_also_after_the_descriptor_is_closed(folder: Path):
    descriptor = create_memory(SIZE)
    one, other = Mapping(descriptor, SIZE), Mapping(descriptor, SIZE)
    os.close(descriptor)

    assert one.address != other.address
    memory_at(one)[:] = np.arange(SIZE) % 251
    assert memory_at(other).tolist() == (np.arange(SIZE) % 251).tolist()

    one.close()
    memory_at(other)[SIZE - 1] = 7
    assert memory_at(other)[SIZE - 1] == 7
    other.close()


def test_fresh_memory_is_zero_and_has_no_name(folder: Path):
    descriptor = create_memory(SIZE)

    assert os.fstat(descriptor).st_size == SIZE
    assert os.fstat(descriptor).st_nlink == 0
    assert list(folder.iterdir()) == []
    mapping = Mapping(descriptor, SIZE)
    assert not memory_at(mapping).any()
    os.close(descriptor)
    mapping.close()


def test_a_program_that_is_started_does_not_inherit_it(folder: Path):
    descriptor = create_memory(SIZE)

    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_what_is_written_privately_nobody_else_sees(folder: Path):
    descriptor = create_memory(SIZE)
    shared, private = Mapping(descriptor, SIZE), Mapping(descriptor, SIZE, is_private=True)
    os.close(descriptor)
    memory_at(shared)[:] = 1

    memory_at(private)[: SIZE // 2] = 2

    assert set(memory_at(shared)) == {1}
    assert set(memory_at(private)) == {1, 2}
    shared.close()
    private.close()


def test_more_than_can_be_mapped_is_an_error_that_reports_how_much():
    descriptor = create_memory(SIZE)
    with pytest.raises(OSError, match=r"^\[Errno 12\] 4611686018427387904 bytes could not be map"):
        Mapping(descriptor, 1 << 62)
    os.close(descriptor)


def test_a_disk_that_is_too_small_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    before = _descriptors()

    with pytest.raises(OSError, match=r"space|large"):
        create_memory(1 << 60)

    assert _descriptors() == before


def views_of(array: Any) -> dict[str, Any]:
    """Return arrays on the same memory, made in all the ways users do."""
    return {
        "itself": array[...],
        "slice": array[100:200],
        "reshaped": array.reshape(100, 100)[3:5, ::7],
        "other type": array.view(np.float32),
        "transposed": array.reshape(100, 100).T,
        "subclass": array.view(np.recarray),
        "asarray": np.asarray(array),
        "frombuffer": np.frombuffer(array, np.uint8),
        "memoryview": memoryview(array),
        "split": np.split(array, 10)[4],
        "broadcast": np.broadcast_to(array[0:1], (5,)),
        "iterated": list(array.reshape(100, 100))[50],
    }


@pytest.mark.parametrize("name", views_of(np.zeros(SIZE, np.uint8)))
def test_a_lease_lives_as_long_as_any_array_on_its_memory(name: str):
    owner = np.zeros(SIZE, np.uint8)
    lease = Lease(address_of(owner), SIZE)
    is_over = weakref.ref(lease)
    array = lease.view()
    kept = views_of(array)[name]

    del lease, array
    gc.collect()
    assert is_over() is not None
    del kept
    gc.collect()
    assert is_over() is None


def test_what_was_copied_holds_no_lease():
    owner = np.arange(SIZE, dtype=np.uint8)
    lease = Lease(address_of(owner), SIZE)
    is_over = weakref.ref(lease)
    copies = [lease.view().copy(), lease.view()[5], lease.view()[[1, 2]], lease.view() + 1]

    del lease

    assert is_over() is None
    assert copies[1] == 5


def test_leased_memory_can_be_written_and_is_where_its_address_is():
    owner = np.zeros(SIZE, np.uint8)
    array = Lease(address_of(owner), SIZE).view()

    array[3] = 9

    assert owner[3] == 9
    assert address_of(array) == address_of(owner)
    assert address_of(array[64:]) == address_of(owner) + 64
    assert array.flags.writeable
