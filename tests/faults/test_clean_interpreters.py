"""Workers are interpreters of their own: the user's program is not run again, nor JAX imported."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import DataLoader, WorkerOptions
from tests.faults.gates import Notes
from tests.faults.processes import workers_of
from tests.faults.scripts import Done, Script, clean_environment, run_command

MakeLoader = Callable[..., DataLoader]
Run = Callable[..., Script]

PROGRAM = """
import dataclasses, enum, os, pathlib, typing
import numpy as np
from gristmill import Batch, DataLoader, Filter, IndexSampler, Map

with open("runs.txt", "a") as file:
    file.write(f"{__name__}\\n")
OFFSET = 1000

@dataclasses.dataclass
class Point:
    x: int
    def far(self):
        return self.x + OFFSET

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Pair(typing.NamedTuple):
    n: int
    name: str

class Custom(Exception):
    pass

class Source:
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return Point(int(index))

class Even(Filter):
    def filter(self, point):
        return point.x % 2 == 0

class Shift(Map):
    def map(self, point):
        return Point(point.x + helper())

def helper():
    return OFFSET

def dress(point):
    return {"point": point, "colour": Colour(1 + point.x % 2), "pair": Pair(point.x, "a")}

def load(*operations, worker_count=2):
    return DataLoader(
        data_source=Source(),
        sampler=IndexSampler(12, num_epochs=1),
        operations=operations,
        worker_count=worker_count,
    )

def main():
    elements = list(load(Even(), Shift(), dress))
    print([element["point"].x for element in elements])
    print({type(element["point"]) is Point for element in elements},
          {element["colour"] is Colour.RED for element in elements},
          {type(element["pair"]) is Pair for element in elements})
    print(elements[0]["point"].far(), elements[0] == dress(Point(1000)))

    def fail(point):
        raise Custom("of the script", point.x)
    try:
        list(load(fail))
    except Custom as error:
        print(type(error) is Custom, error.args)

    pids = set(load(lambda point: os.getpid()))
    print(os.getpid() in pids, len(pids) <= 2)

main()
"""

EXPECTED = """\
[1000, 1002, 1004, 1006, 1008, 1010]
{True} {True} {True}
2000 True
True ('of the script', 0)
False True
"""


def run_as_script(folder: Path) -> Done:
    (folder / "train.py").write_text(PROGRAM)
    return run_command(sys.executable, "train.py", cwd=folder)


def run_as_module(folder: Path) -> Done:
    (folder / "job").mkdir()
    (folder / "job" / "__init__.py").touch()
    (folder / "job" / "train.py").write_text(PROGRAM)
    return run_command(sys.executable, "-m", "job.train", cwd=folder)


def run_as_argument(folder: Path) -> Done:
    return run_command(sys.executable, "-c", PROGRAM, cwd=folder)


def run_from_standard_input(folder: Path) -> Done:
    return run_command(sys.executable, "-", stdin=PROGRAM, cwd=folder)


def run_as_heredoc(folder: Path) -> Done:
    command = f"{sys.executable} <<'END'\n{PROGRAM}\nEND\n"
    return run_command("sh", "-c", command, cwd=folder)


def run_with_a_guard(folder: Path) -> Done:
    text = PROGRAM.replace("\nmain()\n", '\nif __name__ == "__main__":\n    main()\n')
    (folder / "train.py").write_text(text)
    return run_command(sys.executable, "train.py", cwd=folder)


def run_by_exec(folder: Path) -> Done:
    text = f"import runpy\nrunpy.run_path({str(folder / 'train.py')!r}, run_name='__main__')\n"
    (folder / "train.py").write_text(PROGRAM)
    return run_command(sys.executable, "-c", text, cwd=folder)


@pytest.mark.parametrize(
    "run",
    [
        run_as_script,
        run_as_module,
        run_as_argument,
        run_from_standard_input,
        run_as_heredoc,
        run_with_a_guard,
        run_by_exec,
    ],
)
def test_a_program_with_its_own_classes_works_and_runs_once(
    tmp_path: Path, run: Callable[[Path], Done]
):
    done = run(tmp_path)

    assert (done.out, done.err, done.code) == (EXPECTED, "", 0)
    assert (tmp_path / "runs.txt").read_text() == "__main__\n"


def test_a_module_beside_the_script_is_found(tmp_path: Path):
    (tmp_path / "beside.py").write_text("def twice(n):\n    return 2 * n\n")
    (tmp_path / "train.py").write_text(
        "import beside\n"
        "from gristmill import load\n"
        "print(list(load(range(4), num_epochs=1, transformations=[beside.twice], "
        "worker_count=2)))\n"
    )

    done = run_command(sys.executable, str(tmp_path / "train.py"), cwd="/")

    assert (done.out, done.err) == ("[0, 2, 4, 6]\n", "")


def test_a_path_added_to_sys_path_is_searched(tmp_path: Path):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "elsewhere.py").write_text("def twice(n):\n    return 2 * n\n")
    text = f"""
import sys, pathlib
sys.path.append({str(tmp_path / "else")!r})
sys.path.append(pathlib.Path({str(tmp_path)!r}))  # Python itself passes over what is no text
import elsewhere
from gristmill import load
print(list(load(range(4), num_epochs=1, transformations=[elsewhere.twice], worker_count=2)))
"""

    done = run_command(sys.executable, "-c", text)

    assert (done.out, done.err) == ("[0, 2, 4, 6]\n", "")


def test_no_jax_is_imported_for_us(make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch):
    # With a fork server of its own: others have imported modules for earlier tests.
    monkeypatch.setenv("GRISTMILL_TEST", "imports")

    def modules(_: int) -> list[str]:
        return sorted(set(sys.modules) & {"jax", "jaxlib", "grain._src", "pytest", "tests"})

    assert list(make_loader(range(4), modules)) == [[]] * 4


def test_the_environment_keeps_jax_to_the_cpu_and_out_of_a_job(
    make_loader: MakeLoader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "nowhere:1234")
    names = ["JAX_PLATFORMS", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES"]

    with iter(make_loader(range(2), lambda _: [os.environ.get(name) for name in names])) as got:
        assert list(got) == [["cpu", None, None]] * 2


def test_jax_in_a_transform_sees_the_cpu(script: Run):
    done = script(
        """
        from gristmill import load

        def devices(n):
            import jax
            import jax.numpy as jnp
            return [device.platform for device in jax.devices()], float(jnp.sum(jnp.arange(n)))

        print(list(load([3, 4], num_epochs=1, transformations=[devices], worker_count=1)))
        """
    ).finish()

    assert (done.out, done.err) == ("[(['cpu'], 3.0), (['cpu'], 6.0)]\n", "")


def test_workers_start_without_a_warning_beside_a_running_jax(script: Run):
    done = script(
        """
        import os, threading
        import jax, jax.numpy as jnp
        print(float(jnp.arange(1000.0).sum()))
        import numpy as np
        from gristmill import Batch, DataLoader, IndexSampler

        loader = DataLoader(
            data_source=range(100),
            sampler=IndexSampler(100, num_epochs=1),
            operations=[lambda n: np.full(1000, n, np.float32), Batch(10)],
            worker_count=2,
        )
        print(sum(float(jax.device_put(batch).sum()) for batch in loader))
        """,
        "-W",
        "error",
    ).finish()

    assert (done.out, done.err) == ("499500.0\n4950000.0\n", "")


def test_a_batch_on_the_device_outlives_everything_else(script: Run):
    done = script(
        """
        import gc
        import jax, numpy as np
        from gristmill import Batch, DataLoader, IndexSampler

        loader = DataLoader(
            data_source=range(400),
            sampler=IndexSampler(400, num_epochs=1),
            operations=[lambda n: np.full(1000, n, np.float32), Batch(10)],
            worker_count=2,
        )
        arrays = [jax.device_put(batch) for batch in loader]
        gc.collect()
        print(all((array[:, 5] == np.arange(10 * n, 10 * n + 10)).all()
                  for n, array in enumerate(arrays)))
        """
    ).finish()

    assert (done.out, done.err) == ("True\n", "")


def test_init_fn_gets_number_and_count_and_runs_first(make_loader: MakeLoader, tmp_path: Path):
    notes = Notes(tmp_path / "notes")

    def begin(number: int, count: int) -> None:
        os.environ["WORKER"] = f"{number} of {count}"
        notes.write(f"{number} of {count}")

    def step(element: int) -> str:
        return os.environ.get("WORKER", "not begun")

    loader = make_loader(range(200), step, worker_options=WorkerOptions(worker_init_fn=begin))

    assert set(loader) <= {"0 of 2", "1 of 2"}
    assert sorted(notes.read()) == ["0 of 2", "1 of 2"]


def test_init_fn_runs_before_the_plan_is_unpacked(make_loader: MakeLoader, tmp_path: Path):
    """So it can bring what the plan needs: a credential, a path to search."""

    class Wary:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index

        def __setstate__(self, state: Any) -> None:
            assert os.environ.get("KEY") == "secret"

        def __getstate__(self) -> dict[str, int]:
            return {"a": 1}

    def begin(number: int, count: int) -> None:
        os.environ["KEY"] = "secret"

    loader = make_loader(Wary(), worker_options=WorkerOptions(worker_init_fn=begin))

    assert list(loader) == [0, 1, 2]


def test_what_init_fn_raises_is_raised_with_its_line(make_loader: MakeLoader):

    def begin(number: int, count: int) -> None:
        raise LookupError("no such data set")

    iterator = iter(make_loader(range(5), worker_options=WorkerOptions(worker_init_fn=begin)))
    with pytest.raises(LookupError, match="no such data set") as caught:
        next(iterator)

    notes = "\n".join(caught.value.__notes__)
    assert "Starting worker" in notes
    assert f'"{__file__}"' in notes
    assert 'raise LookupError("no such data set")' in notes
    iterator.close()


def test_a_replaced_worker_is_initialised_too(make_loader: MakeLoader, tmp_path: Path):
    notes = Notes(tmp_path / "notes")

    def begin(number: int, count: int) -> None:
        notes.write(number)

    def step(element: int) -> int:
        if element == 3 and len(notes.read()) < 2:
            os._exit(1)
        return element

    options = WorkerOptions(worker_init_fn=begin)
    loader = make_loader(range(10), step, worker_count=1, worker_options=options)

    assert list(loader) == list(range(10))
    assert notes.read() == ["0", "0"]


def test_all_workers_hash_text_alike(make_loader: MakeLoader):
    """Else `hash(name) % 10`, or the order of a set, would depend on who computes a record."""
    hashes = list(make_loader(["some text"] * 400, hash))

    assert len(set(hashes)) == 1


def test_workers_compute_with_the_flags_of_the_parent(tmp_path: Path):
    (tmp_path / "strict.py").write_text("def check(n):\n    assert n < 2\n    return n\n")
    text = (
        "import strict\n"
        "from gristmill import load\n"
        "print(list(load(range(4), num_epochs=1, transformations=[strict.check], "
        "worker_count=WORKERS)))\n"
    )
    outs = [
        run_command(
            sys.executable, "-O", "-c", text.replace("WORKERS", str(count)), cwd=tmp_path
        ).out
        for count in (0, 1)
    ]

    assert outs == ["[0, 1, 2, 3]\n", "[0, 1, 2, 3]\n"]


def test_what_a_worker_prints_is_printed(script: Run):
    done = script(
        """
        from gristmill import load

        def step(n):
            print(f"record {n}")
            return n

        print(list(load(range(3), num_epochs=1, transformations=[step], worker_count=1)))
        """
    ).finish()

    assert sorted(done.out.splitlines()) == ["[0, 1, 2]", "record 0", "record 1", "record 2"]


def test_workers_do_not_read_the_standard_input_of_the_program(script: Run):
    running = script(
        """
        import sys
        from gristmill import load

        def step(n):
            return sys.stdin.read()

        print(list(load(range(3), num_epochs=1, transformations=[step], worker_count=1)))
        print(sys.stdin.readline())
        """
    )
    running.tell("for the program")
    done = running.finish()

    assert (done.out, done.err) == ("['', '', '']\nfor the program\n\n", "")


def test_a_folder_changed_before_the_start_is_the_workers_too(tmp_path: Path):
    (tmp_path / "data.txt").write_text("here")
    text = f"""
import os, pathlib
from gristmill import load
os.chdir({str(tmp_path)!r})
print(list(load(range(2), num_epochs=1, worker_count=1,
                transformations=[lambda n: pathlib.Path("data.txt").read_text()])))
"""

    done = run_command(sys.executable, "-c", text, cwd="/")

    assert (done.out, done.err) == ("['here', 'here']\n", "")


def test_a_large_source_in_memory_exists_once_for_all_workers(script: Run):
    done = script(
        """
        import pathlib
        import numpy as np
        from gristmill import DataLoader, IndexSampler, ArraySource

        def own_memory(element):
            text = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
            found = {line.split()[0]: int(line.split()[1]) for line in text[1:]}
            return found["Anonymous:"] * 1024, int(element.sum())

        data = np.ones((200, 125_000))  # 200 MB
        loader = DataLoader(
            data_source=ArraySource(data),
            sampler=IndexSampler(200, num_epochs=1),
            operations=[own_memory],
            worker_count=2,
        )
        seen = list(loader)
        print(max(memory for memory, _ in seen) < 100_000_000, {total for _, total in seen})
        """
    ).finish()

    assert (done.out, done.err) == ("True {125000}\n", "")


def test_a_worker_is_not_in_the_way_of_the_users_own_children(script: Run):
    """Who waits for any child gets the user's, and the workers still end."""
    done = script(
        """
        import os, subprocess, sys
        from gristmill import load

        iterator = iter(load(range(10**6), num_epochs=1, worker_count=2))
        next(iterator)
        ended = subprocess.Popen([sys.executable, "-c", "pass"])
        print(os.waitpid(ended.pid, 0)[1], ended.wait())
        iterator.close()
        print(next(iter(load(range(3), num_epochs=1, worker_count=1))))
        """
    ).finish()

    assert (done.out, done.err) == ("0 0\n0\n", "")


def test_a_program_that_ignores_its_children_has_its_workers(script: Run):
    """With SIGCHLD ignored the kernel takes the exit codes away before one can ask for them."""
    done = script(
        """
        import os, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        from gristmill import load

        def once(n):
            if n == 5 and not os.path.exists("died"):
                open("died", "w").close()
                os._exit(1)
            return n

        print(list(load(range(10), num_epochs=1, transformations=[once], worker_count=1)))
        """
    ).finish()

    assert (done.out, done.err) == (f"{list(range(10))}\n", "")


def test_a_program_without_standard_streams_has_its_workers(tmp_path: Path):
    """As a daemon has it, or pythonw."""
    text = f"""
import pathlib
from gristmill import load
elements = list(load(range(10), num_epochs=1, worker_count=2))
pathlib.Path({str(tmp_path / "out")!r}).write_text(str(elements))
"""
    command = f"exec {sys.executable} -c '{text}' <&- >&- 2>&-".replace("'/", '"/').replace(
        "out'", 'out"'
    )
    subprocess.run(["sh", "-c", command], env=clean_environment(), timeout=60, check=True)

    assert (tmp_path / "out").read_text() == str(list(range(10)))


def test_building_a_loader_with_workers_starts_nothing(make_loader: MakeLoader):
    iterator = iter(make_loader(range(10), lambda x: np.full(3, x)))

    assert workers_of(os.getpid()) == []
    iterator.close()
