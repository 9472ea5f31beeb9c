"""Whatever happens to the fork server or changes around it, workers start as they should."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill._engine.executors.processes.fork_server import MAX_REFUSALS
from tests.faults.processes import fork_servers_of, gone, until
from tests.faults.scripts import Script

Run = Callable[..., Script]

START = """
    import os, pathlib, random, sys, threading, time
    import numpy as np
    from gristmill import DataLoader, IndexSampler, WorkerOptions
    from gristmill.errors import WorkerError

    def make(source, *operations, worker_count=2, **options):
        return DataLoader(
            data_source=source,
            sampler=IndexSampler(len(source), num_epochs=1),
            operations=operations,
            worker_count=worker_count,
            worker_options=WorkerOptions(**options),
        )
"""


def start(script: Run, text: str, *options: str, env: dict[str, str] | None = None) -> Script:
    """Start a program that makes loaders."""
    return script(START + text, *options, env=env)


def output(script: Run, text: str, *options: str, env: dict[str, str] | None = None) -> list[str]:
    """Run a program that reports only what it prints, and return that."""
    done = start(script, text, *options, env=env).finish()
    assert (done.err, done.code) == ("", 0)
    return done.out.splitlines()


def test_workers_are_forked_and_later_epochs_use_the_same(script: Run):
    assert output(
        script,
        """
    loader = make(range(50), lambda n: os.getpid())
    def run():
        seen = set(loader)
        while not loader._pipeline.settings.pools._idle:  # a thread returns the workers
            time.sleep(0.001)
        return seen
    first, second, third = run(), run(), run()
    print(os.getpid() in first, len(first | second | third) <= 2)
    print(loader.stats().worker_start)
    """,
        "-W",
        "error",
        "-X",
        "dev",
    ) == ["False True", "forked"]


def test_later_epochs_a_break_and_an_evaluation_use_the_same_processes(script: Run):
    assert (
        output(
            script,
            """
    def pids():
        return sorted(w.pid for w in keeper._idle[0].pool._workers.values())

    loader, evaluation = make(range(50)), make(range(9))
    keeper = loader._pipeline.settings.pools
    list(loader)
    while not keeper._idle:
        time.sleep(0.001)
    before = pids()
    for epoch in range(3):
        for n in loader:
            if n == 7:
                break
        while not keeper._idle:  # a thread returns the workers
            time.sleep(0.001)
        assert list(evaluation) == list(range(9))
        iterator = iter(loader)
        next(iterator)
        state = iterator.get_state()
        assert list(iterator) == list(range(1, 50))
        iterator.set_state(state)
        assert list(iterator) == list(range(1, 50))
        del iterator
        while not keeper._idle:
            time.sleep(0.001)
        print(pids() == before)
    """,
            "-W",
            "error",
        )
        == ["True"] * 3
    )


def test_a_source_that_changes_between_loops_is_sent_again(script: Run):
    assert output(
        script,
        """
    class Counter:
        step = 1
        def __call__(self, n):
            return n * self.step

    names, array, counter = ["a"] * 3000, np.zeros(20_000), Counter()
    of_names, of_array, of_counter = make(names), make(array), make(range(3), counter)
    print(set(of_names), sum(of_array), list(of_counter))
    names[2000] = "b"
    array[:] = 1
    counter.step = 5
    print(sorted(set(of_names)), sum(of_array), list(of_counter))
    """,
    ) == ["{'a'} 0.0 [0, 1, 2]", "['a', 'b'] 20000.0 [0, 5, 10]"]


def test_a_global_of_the_script_that_changes_is_sent_again(script: Run):
    assert output(
        script,
        """
    scale = 1
    loader = make(range(3), lambda n: n * scale)
    print(list(loader))
    scale = 3
    print(list(loader))
    """,
    ) == ["[0, 1, 2]", "[0, 3, 6]"]


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_server_that_is_killed_is_replaced(script: Run, is_busy: bool):
    running = start(
        script,
        f"""
    loader = make(range(10_000), lambda n: n)
    iterator = iter(loader)
    first = [next(iterator)]
    if not {is_busy}:
        iterator.close()
    print("ready", flush=True)
    sys.stdin.readline()
    if {is_busy}:
        assert first + list(iterator) == list(range(10_000))
    assert list(loader) == list(range(10_000))
    assert list(make(range(5), lambda n: -n)) == [0, -1, -2, -3, -4]
    print("done", flush=True)
    """,
        "-W",
        "error",
    )
    running.wait_for("ready")
    servers = fork_servers_of(running.pid)
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    until(gone(servers), "the server is dead")

    running.tell("")
    running.wait_for("done")
    done = running.finish()

    assert (done.err, done.code) == ("", 0)
    until(gone(running.family), "nothing is left")


DIES_IN_SERVERS = """
import os, pathlib, sys
if sys.argv[0] == "gristmill-worker" and not pathlib.Path("survives").exists():
    pathlib.Path("survives").touch()
    os.kill(os.getpid(), 9)
def step(n):
    return n
"""


def test_a_server_that_dies_while_many_workers_start_is_replaced(script: Run, tmp_path: Path):
    (tmp_path / "fragile.py").write_text(DIES_IN_SERVERS)

    assert output(
        script,
        """
    import fragile
    loader = make(range(9), fragile.step, worker_count=5)
    print(list(loader), loader.stats().num_restarts, loader.stats().worker_start)
    other = make(range(3), lambda n: n, worker_count=1)
    print(list(other), other.stats().worker_start)
    """,
    ) == [
        "[0, 1, 2, 3, 4, 5, 6, 7, 8] 0 forked, with imports in each worker: "
        "the fork server died while it imported fragile",
        "[0, 1, 2] forked",
    ]


def test_a_module_that_crashes_when_it_is_imported_is_named_by_its_signal(
    script: Run, tmp_path: Path
):
    (tmp_path / "fatal.py").write_text(
        "import os, sys\nif sys.argv[0] == 'gristmill-worker':\n    os.kill(os.getpid(), 11)\n"
        "def step(n):\n    return n\n"
    )

    assert output(
        script,
        """
    import fatal
    try:
        list(make(range(9), fatal.step))
    except WorkerError as error:
        print(error)
    """,
    ) == ["3 workers in a row died while they started: signal SIGSEGV."]


def test_a_worker_that_is_killed_after_the_server_names_an_unknown_cause(script: Run):
    assert output(
        script,
        """
    import signal, subprocess
    def die(n):
        if n == 3:
            os.kill(os.getppid(), signal.SIGKILL) if os.getppid() != 1 else None
            os._exit(7)
        return n
    try:
        list(make(range(5), die, worker_count=1, max_restarts=0))
    except WorkerError as error:
        print("More than 0 workers died" in str(error))
    """,
    ) == ["True"]


HAZARDS = {
    "threads": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "starts threads",
    ),
    "files": ("FILE = open(__file__)", "leaves files open"),
    "jax": ("import jax", "imports JAX"),
}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_module_that_must_not_be_forked_is_imported_by_each_worker(
    script: Run, tmp_path: Path, hazard: str
):
    (tmp_path / "hazard.py").write_text(
        f"{HAZARDS[hazard][0]}\nimport os\nHOME = os.getpid()\n"
        "def step(n):\n    return n + 1, HOME == os.getpid()\n"
    )
    (tmp_path / "harmless.py").write_text(
        "import os\nHOME = os.getpid()\ndef same(n):\n    return n\n"
    )

    assert output(
        script,
        """
    import harmless, hazard
    loader = make(range(4), harmless.same, hazard.step)
    print(list(loader), list(loader) == list(loader))
    print(loader.stats().worker_start)
    print(loader.stats().num_restarts)
    print({home == os.getpid() for _, home in make(range(4), lambda n: (n, harmless.HOME))})
    """,
    ) == [
        "[(1, True), (2, True), (3, True), (4, True)] True",
        f"forked, with imports in each worker: hazard {HAZARDS[hazard][1]}"
        f"{'' if hazard == 'jax' else ' when it is imported'}",
        "0",
        "{False}",
    ]


def test_a_module_that_cannot_be_imported_again_yields_the_error_of_the_worker(
    script: Run, tmp_path: Path
):
    (tmp_path / "once.py").write_text(
        "import os, sys\n"
        "if sys.argv[0] == 'gristmill-worker':\n    raise LookupError('not here')\n"
        "def step(n):\n    return n\n"
    )

    assert output(
        script,
        """
    import once
    loader = make(range(4), once.step)
    for _ in range(2):
        try:
            list(loader)
        except LookupError as error:
            print(error)
    """,
    ) == ["not here", "not here"]


def test_numpy_with_threads_makes_workers_fresh_interpreters(script: Run):
    out = output(
        script,
        """
    loader = make(range(4))
    print(list(loader), list(loader))
    print(loader.stats().worker_start)
    """,
        env={"OPENBLAS_NUM_THREADS": "4"},
    )

    assert out[0] == "[0, 1, 2, 3] [0, 1, 2, 3]"
    assert out[1] in (
        "forked",
        "spawned: NumPy starts threads; OPENBLAS_NUM_THREADS=1 prevents that",
    )


def test_threads_before_the_first_fork_make_workers_fresh_interpreters(script: Run, tmp_path: Path):
    """As NumPy's libraries start them, but whatever library this NumPy has."""
    (tmp_path / "sitecustomize.py").write_text(HAZARDS["threads"][0])

    assert output(
        script,
        """
    loader = make(range(4), lambda n: n)
    print(list(loader), list(loader))
    print(loader.stats().worker_start)
    """,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    ) == [
        "[0, 1, 2, 3] [0, 1, 2, 3]",
        "spawned: NumPy starts threads; OPENBLAS_NUM_THREADS=1 prevents that",
    ]


def test_after_many_modules_that_must_not_be_forked_workers_are_fresh_interpreters(
    script: Run, tmp_path: Path
):
    for number in range(MAX_REFUSALS):
        text = f"{HAZARDS['threads'][0]}\ndef step(n):\n    return n + 1\n"
        (tmp_path / f"hazard_{number}.py").write_text(text)

    out = output(
        script,
        f"""
    import importlib
    modules = [importlib.import_module(f"hazard_{{n}}") for n in range({MAX_REFUSALS})]
    loader = make(range(2), *(module.step for module in modules))
    print(list(loader), list(loader))
    print(loader.stats().worker_start)
    """,
    )

    reasons = [
        f"hazard_{number} starts threads when it is imported" for number in range(MAX_REFUSALS)
    ]
    assert out == ["[8, 9] [8, 9]", f"spawned: {'; '.join(reasons)}"]


def test_an_init_function_that_fails_does_so_for_every_iterator(script: Run):
    assert (
        output(
            script,
            """
    def fail(number, count):
        raise ValueError("no device")
    loader = make(range(4), worker_init_fn=fail)
    for _ in range(3):
        try:
            list(loader)
        except ValueError as error:
            print(error)
    """,
            "-W",
            "error",
        )
        == ["no device"] * 3
    )


def test_an_init_function_that_fails_once_is_called_again(script: Run, tmp_path: Path):
    assert output(
        script,
        """
    def fail(number, count):
        if not pathlib.Path("device").exists():
            raise ValueError("no device")
    loader = make(range(4), worker_init_fn=fail)
    try:
        list(loader)
    except ValueError as error:
        print(error)
    pathlib.Path("device").touch()
    print(list(loader))
    """,
    ) == ["no device", "[0, 1, 2, 3]"]


def test_new_workers_see_what_has_changed_since_the_server_started(script: Run, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "found.py").write_text("def step(n):\n    return 'found'\n")

    assert output(
        script,
        """
    look = lambda n: (os.environ.get("COLOUR"), os.path.basename(os.getcwd()))
    list(make(range(2), look))
    os.environ["COLOUR"] = "red"
    os.chdir("elsewhere")
    sys.path.insert(0, os.getcwd())
    import found
    print(list(make(range(1), look)), list(make(range(1), found.step)))
    """,
    ) == ["[('red', 'elsewhere')] ['found']"]


def test_kept_workers_are_not_used_with_another_environment_or_folder(script: Run, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()

    assert output(
        script,
        """
    look = lambda n: (os.environ.get("COLOUR"), os.path.basename(os.getcwd()))
    loader = make(range(1), look)
    here = list(loader)
    print(list(loader) == here)
    os.environ["COLOUR"] = "red"
    print(list(loader) == [("red", here[0][1])])
    os.chdir("elsewhere")
    print(list(loader))
    """,
    ) == ["True", "True", "[('red', 'elsewhere')]"]


def test_a_module_that_is_loaded_again_is_so_in_workers_too(script: Run, tmp_path: Path):
    (tmp_path / "steps.py").write_text("import helper\ndef step(n):\n    return helper.add(n)\n")

    assert output(
        script,
        """
    import importlib
    sys.dont_write_bytecode = True  # it does not notice a second edit within a second
    def edit(number):
        pathlib.Path("helper.py").write_text(f"def add(n):\\n    return n + {number}\\n")
    edit(1)
    import helper, steps
    loader = make(range(3), steps.step)
    print(list(loader), list(loader))
    edit(10)
    importlib.reload(helper)
    print(list(loader), list(make(range(3), steps.step)))
    """,
        "-B",
    ) == ["[1, 2, 3] [1, 2, 3]", "[10, 11, 12] [10, 11, 12]"]


def test_workers_start_in_a_folder_that_was_deleted(script: Run, tmp_path: Path):
    assert output(
        script,
        """
    os.mkdir("run")
    os.chdir("run")
    os.rmdir("../run")
    print(list(make(range(3))))
    """,
    ) == ["[0, 1, 2]"]


def test_modules_are_found_in_a_relative_folder_of_the_path(script: Run, tmp_path: Path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "step.py").write_text(f"def step(n):\n    return '{name}'\n")

    assert output(
        script,
        """
    sys.path.insert(0, "")
    os.chdir("first")
    list(make(range(1)))  # starts the server here
    os.chdir("../second")
    import step
    print(list(make(range(1), step.step)))
    """,
    ) == ["['second']"]


def test_new_workers_print_where_the_parent_prints_now(script: Run, tmp_path: Path):
    assert output(
        script,
        """
    def say(n):
        print("record", n, flush=True)
        return n
    list(make(range(1)))
    with open("out.txt", "w") as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        list(make(range(2), say, worker_count=1))
        os.dup2(kept, 1)
    print(pathlib.Path("out.txt").read_text().splitlines())
    """,
    ) == ["['record 0', 'record 1']"]


def test_workers_have_random_numbers_of_their_own(script: Run):
    assert output(
        script,
        """
    gate = pathlib.Path("gate")
    gate.mkdir()
    def draw(n):
        (gate / str(os.getpid())).touch()
        while len(list(gate.iterdir())) < 2:
            pass
        return os.getpid(), np.random.random(), random.random()
    drawn = {pid: (a, b) for pid, a, b in make(range(200), draw)}
    (one, two), (three, four) = drawn.values()
    print(one != three, two != four)
    """,
    ) == ["True True"]


def test_a_fork_of_the_parent_starts_workers_of_its_own(script: Run):
    assert output(
        script,
        """
    loader = make(range(20), lambda n: n)
    list(loader)
    child = os.fork()
    if child == 0:
        assert list(loader) == list(range(20))
        loader.close()
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    print(list(loader) == list(range(20)), loader.stats().num_restarts)
    """,
    ) == ["0", "True 0"]


def test_a_loader_that_is_dropped_leaves_its_iterator_alone(script: Run):
    assert output(
        script,
        """
    iterator = iter(make(range(50), lambda n: n))
    print(list(iterator) == list(range(50)))
    """,
        "-W",
        "error",
        "-X",
        "dev",
    ) == ["True"]


@pytest.mark.parametrize("end", ["", "loader.close()", "del loader", "sys.exit()", "os._exit(0)"])
def test_a_program_with_idle_workers_ends_silently_and_takes_them_along(script: Run, end: str):
    running = start(
        script,
        f"""
    loader = make(range(50), lambda n: n)
    list(loader)
    print("ready", flush=True)
    sys.stdin.readline()
    {end}
    """,
        "-W",
        "error",
        "-X",
        "dev",
    )
    running.wait_for("ready")
    assert len(running.workers) == 2
    running.tell("")

    done = running.finish()

    assert (done.err, done.code) == ("", 0)
    until(gone(running.family), "nothing is left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_idle_workers_end_with_a_program_that_is_killed(script: Run, number: signal.Signals):
    running = start(
        script,
        """
    loader = make(range(50), lambda n: n)
    list(loader)
    print("ready", flush=True)
    sys.stdin.readline()
    """,
    )
    running.wait_for("ready")
    assert len(running.workers) == 2

    running.send_to_group(number)
    running.wait()

    until(gone(running.family), "nothing is left")


def test_the_server_ends_with_a_parent_that_is_killed_while_it_imports(script: Run, tmp_path: Path):
    (tmp_path / "slow.py").write_text(
        "import pathlib, sys, time\n"
        "if sys.argv[0] == 'gristmill-worker':\n"
        "    pathlib.Path('importing').touch()\n    time.sleep(60)\n"
        "def step(n):\n    return n\n"
    )
    running = start(
        script,
        """
    import slow
    list(make(range(5), slow.step))
    """,
    )
    until(lambda: (tmp_path / "importing").exists(), "the server imports the module")
    running.look()

    running.kill()

    until(gone(running.family), "nothing is left")
