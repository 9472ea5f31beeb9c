"""Little shared memory, few file descriptors, many batches that are kept."""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gristmill import Batch, DataLoader, WorkerOptions
from gristmill.errors import PlanError
from tests.faults.processes import shared_bytes, shared_mappings, until
from tests.faults.scripts import Script, run_command

MakeLoader = Callable[..., DataLoader]
Run = Callable[..., Script]

PRIVATE_MOUNTS = ("unshare", "--mount", "sh", "-c")
SMALL_SHM = "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec"

LARGE_BATCHES = """
    import os, shutil
    import numpy as np
    from gristmill import Batch, DataLoader, IndexSampler, WorkerOptions

    def without_memfd(number, count):
        if hasattr(os, "memfd_create"):
            del os.memfd_create

    print(shutil.disk_usage("/dev/shm").total)
    loader = DataLoader(
        data_source=range(24),
        sampler=IndexSampler(24, num_epochs=1),
        operations=[lambda n: np.full((1_000_000,), n, np.float32), Batch(3)],  # 12 MB
        worker_count=2,
        worker_options=WorkerOptions(worker_init_fn=without_memfd if {is_without} else None),
    )
    batches = list(loader)
    print([[int(n) for n in batch[:, 999]] for batch in batches] ==
          [[n, n + 1, n + 2] for n in range(0, 24, 3)])
    print(os.listdir("/dev/shm"))
"""


def assert_may_mount() -> None:
    """Skip where a process may not have mounts of its own."""
    done = run_command(*PRIVATE_MOUNTS, f"{SMALL_SHM} true")
    if done.code:
        pytest.skip(f"no private mount namespace here: {done.err.strip()}")


def in_small_shm(text: str, folder: Path, mounts: str = SMALL_SHM) -> tuple[str, ...]:
    """Return the command that runs a program with 1 MB of /dev/shm."""
    path = folder / "program.py"
    path.write_text("\n".join(line[4:] for line in text.splitlines()))
    return (*PRIVATE_MOUNTS, f"{mounts} {sys.executable} {path}")


@pytest.mark.parametrize("is_without_memfd", [False, True])
def test_large_batches_need_no_room_in_dev_shm(tmp_path: Path, is_without_memfd: bool):
    assert_may_mount()
    program = LARGE_BATCHES.format(is_without=is_without_memfd)

    done = run_command(*in_small_shm(program, tmp_path))

    assert (done.out, done.err, done.code) == (f"{2**20}\nTrue\n[]\n", "", 0)


def test_large_records_in_the_plan_need_no_room_in_dev_shm(tmp_path: Path):
    assert_may_mount()
    program = """
    import numpy as np
    from gristmill import ArraySource, DataLoader, IndexSampler

    data = np.arange(5_000_000).reshape(10, -1)  # 40 MB
    loader = DataLoader(
        data_source=ArraySource(data), sampler=IndexSampler(10, num_epochs=1), worker_count=2
    )
    print(all(np.array_equal(row, data[n]) for n, row in enumerate(loader)))
    """

    done = run_command(*in_small_shm(program, tmp_path))

    assert (done.out, done.err, done.code) == ("True\n", "", 0)


def test_without_memfd_and_without_room_one_error_reports_that(tmp_path: Path):
    assert_may_mount()
    program = LARGE_BATCHES.format(is_without=True)
    (tmp_path / "small").mkdir()
    small = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}/small"
    mounts = f"{small} && export TMPDIR={tmp_path}/small && {SMALL_SHM}"

    done = run_command(*in_small_shm(program, tmp_path, mounts))

    assert done.code == 1
    assert done.err.count("Traceback (most recent call last)") == 1
    assert "No space left on device" in done.err


def test_without_memfd_nothing_is_left_in_the_folder_for_temporary_files(
    script: Run, tmp_path: Path
):
    (tmp_path / "tmp").mkdir()
    program = LARGE_BATCHES.format(is_without=True)

    done = script(program, env={"TMPDIR": str(tmp_path / "tmp")}).finish()

    assert (done.out.splitlines()[1], done.err) == ("True", "")
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let this process have no more than 1024 file descriptors, as most have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_descriptors", "nothing_left")
def test_thousands_of_batches_can_be_kept_and_never_change(make_loader: MakeLoader):
    loader = make_loader(range(6000), lambda n: np.full(10_000, n, np.int32), Batch(2))
    kept, sums = [], []
    with iter(loader) as iterator:
        for batch in iterator:
            kept.append(batch)
            sums.append(int(batch.sum()))
        assert len(kept) == 3000
        assert [int(batch.sum()) for batch in kept] == sums
    assert [int(batch.sum()) for batch in kept] == sums
    assert sums == [10_000 * (n + n + 1) for n in range(0, 6000, 2)]


def test_thousands_of_small_batches_can_be_kept(make_loader: MakeLoader):
    kept = list(make_loader(range(6000), lambda n: np.full(20, n), Batch(2)))

    assert [int(batch[1, 19]) for batch in kept] == list(range(1, 6000, 2))


@pytest.mark.usefixtures("nothing_left")
def test_a_small_array_that_is_kept_does_not_keep_the_large_one_beside_it(
    make_loader: MakeLoader,
):
    me = os.getpid()
    loader = make_loader(
        range(400), lambda n: {"image": np.full(50_000, n, np.uint16), "label": n}, Batch(4)
    )
    with iter(loader) as iterator:
        labels = [batch["label"] for batch in iterator]
    del iterator

    until(lambda: not shared_mappings(me), "the images are unmapped")
    assert np.array_equal(np.concatenate(labels), np.arange(400))


@pytest.mark.usefixtures("nothing_left")
def test_memory_of_batches_that_are_dropped_is_given_back(make_loader: MakeLoader):
    me = os.getpid()
    iterator = iter(make_loader(range(400), lambda n: np.full(100_000, n), Batch(4)))
    kept = list(iterator)
    held = shared_bytes(me)
    assert held >= 400 * 800_000

    del kept[10:]
    iterator.close()

    until(lambda: shared_bytes(me) < held / 5, "what nobody keeps is unmapped")
    assert [int(batch[3, 5]) for batch in kept] == list(range(3, 40, 4))
    kept.clear()
    until(lambda: not shared_mappings(me), "all is unmapped")


@pytest.mark.usefixtures("nothing_left")
def test_memory_is_used_again_when_batches_are_dropped_as_they_come(make_loader: MakeLoader):
    me = os.getpid()
    iterator = iter(make_loader(range(2000), lambda n: np.full(100_000, n), Batch(2)))
    most = 0
    for number, batch in enumerate(iterator):
        assert batch[0, 0] == 2 * number
        most = max(most, shared_bytes(me) if number % 50 == 0 else 0)
        del batch

    assert most < 700_000_000  # of 1.6 GB
    iterator.close()


@pytest.mark.usefixtures("nothing_left")
def test_a_view_of_a_batch_keeps_it(make_loader: MakeLoader):
    iterator = iter(make_loader(range(600), lambda n: np.full(20_000, n), Batch(4)))
    corners = [batch[1:3, :1].T for batch in iterator]
    iterator.close()

    assert [corner.tolist() for corner in corners] == [[[n + 1, n + 2]] for n in range(0, 600, 4)]
    corners.clear()


@pytest.mark.usefixtures("nothing_left")
def test_what_the_user_writes_into_a_batch_stays_in_it(make_loader: MakeLoader):
    iterator = iter(make_loader(range(800), lambda n: np.full(20_000, n), Batch(4)))
    kept = []
    for batch in iterator:
        assert batch[0, 0] == batch[0, -1] == 4 * len(kept)
        batch[:] = -1
        kept.append(batch)
    iterator.close()

    assert all((batch == -1).all() for batch in kept)
    kept.clear()


def test_a_budget_too_small_for_one_batch_reports_how_much_it_needs(make_loader: MakeLoader):
    options = WorkerOptions(memory_budget_bytes=100_000)
    loader = make_loader(range(40), lambda n: np.zeros(100_000), Batch(4), worker_options=options)

    with (
        iter(loader) as iterator,
        pytest.raises(PlanError, match=r"`memory_budget_bytes` is 100,000.*takes 3,200,000"),
    ):
        next(iterator)


def test_a_small_budget_is_kept(make_loader: MakeLoader):
    me = os.getpid()
    options = WorkerOptions(memory_budget_bytes=8_000_000)
    loader = make_loader(range(200), lambda n: np.full(100_000, n), worker_options=options)
    most = 0
    with iter(loader) as iterator:
        for number, element in enumerate(iterator):
            assert element[-1] == number
            most = max(most, shared_bytes(me))
    assert most < 4 * 8_000_000  # made ahead, in hand, to be used again; of 160 MB in all


def test_batches_larger_than_any_before_come_through(make_loader: MakeLoader):
    sizes = [10, 1000, 100_000, 3_000_000, 10, 6_000_000, 1, 0, 2_000_000]
    loader = make_loader(sizes, lambda n: np.full(n, n, np.int64))

    assert [(len(each), int(each.sum())) for each in loader] == [(n, n * n) for n in sizes]


def test_a_parent_that_may_map_no_more_reports_that(script: Run):
    """Linux allows 65,530 mappings to a process."""
    done = script(
        """
        import mmap, ctypes
        import numpy as np
        from gristmill import Batch, DataLoader, IndexSampler

        loader = DataLoader(
            data_source=range(400),
            sampler=IndexSampler(400, num_epochs=1),
            operations=[lambda n: np.full(100_000, n), Batch(2)],
            worker_count=2,
        )
        iterator = iter(loader)
        next(iterator)
        held = []
        try:
            while True:  # every other one is of another kind, or they would be joined
                held.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ))
                held.append(mmap.mmap(-1, 4096))
        except OSError:
            pass
        del held[-4:]
        try:
            kept = list(iterator)
            print("all", [int(batch[1, 0]) for batch in kept] == list(range(3, 400, 2)))
        except (OSError, MemoryError) as error:
            print("reported", "map" in str(error))
        """
    ).finish()

    assert (done.out, done.err) in [("all True\n", ""), ("reported True\n", "")]


def test_a_parent_without_a_free_descriptor_reports_that(script: Run):
    done = script(
        """
        import os, resource
        import numpy as np
        from gristmill import Batch, DataLoader, IndexSampler

        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        loader = DataLoader(
            data_source=range(400),
            sampler=IndexSampler(400, num_epochs=1),
            operations=[lambda n: np.full(100_000, n), Batch(2)],
            worker_count=2,
        )
        iterator = iter(loader)
        next(iterator)
        try:
            while True:
                os.dup(0)
        except OSError:
            pass
        try:
            kept = list(iterator)
            print("all", [int(batch[1, 0]) for batch in kept] == list(range(3, 400, 2)))
        except OSError as error:
            print("reported", error.strerror)
        """
    ).finish()

    assert (done.out, done.err) in [("all True\n", ""), ("reported Too many open files\n", "")]


def test_a_reply_after_the_break_that_finds_no_free_descriptor_ends_the_idle_workers(script: Run):
    running = script(
        """
        import os, pathlib, resource, time
        import numpy as np
        from gristmill import DataLoader, IndexSampler

        def step(number):
            if number == 1:
                pathlib.Path("arrived").touch()
                while not pathlib.Path("open").exists():
                    time.sleep(0.001)
            return np.full(1_000_000, number)  # in a slot of its own, with a descriptor

        loader = DataLoader(
            data_source=range(2),
            sampler=IndexSampler(2, num_epochs=1),
            operations=[step],
            worker_count=1,
        )
        with iter(loader) as iterator:
            assert next(iterator)[0] == 0
            while not pathlib.Path("arrived").exists():
                time.sleep(0.001)
        while not loader._pipeline.settings.pools._idle:  # a thread returns the workers
            time.sleep(0.001)
        pathlib.Path("open").touch()
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(10_000):
            if not loader._pipeline.settings.pools._idle:
                break
            time.sleep(0.001)
        for descriptor in held:
            os.close(descriptor)
        print([int(array[0]) for array in loader])
        """
    )
    done = running.finish()

    assert (done.out, done.err, done.code) == ("[0, 1]\n", "", 0)


def test_a_loader_that_finds_no_free_descriptor_reports_that(script: Run):
    done = script(
        """
        import gc, os, resource
        from gristmill import load
        from gristmill.errors import WorkerError

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for free in range(1, 40):
            os.close(held.pop())
            try:
                print(list(load(range(3), num_epochs=1, worker_count=2)))
                break
            except (OSError, WorkerError) as error:
                reported = str(error)
            assert "Too many open files" in reported, reported
            gc.collect()
        """
    ).finish()

    assert (done.out, done.err) == ("[0, 1, 2]\n", "")
