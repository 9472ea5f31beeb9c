"""Clusters that cannot be reached, or have no room: a clear error within seconds."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray

import gristmill as gm
from gristmill._engine.executors.ray.cluster.nodes import explain_room, has_node_for
from gristmill._engine.executors.ray.cluster.probe import explain_no_answer
from gristmill.errors import PlanError, PlanTypeError, WorkerError
from tests.ray.clusters import (
    STORE_BYTES,
    kill_processes_of,
    pids_with_files_in,
    ray_options,
    until,
)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def first_of(**options: Any) -> Any:
    loader = gm.DataLoader(
        data_source=range(10),
        sampler=gm.SequentialSampler(10, gm.NoSharding()),
        worker_count=1,
        worker_options=gm.RayOptions(**options),
    )
    with closing(loader):
        return next(iter(loader))


PROGRAM = """
import gristmill as gm
loader = gm.DataLoader(
    data_source=range(10),
    sampler=gm.SequentialSampler(10, gm.NoSharding()),
    worker_count=1,
    worker_options=gm.RayOptions({arguments}),
)
next(iter(loader))
"""


def error_of(arguments: str, *, without_ray: bool = False) -> str:
    """Run a program that is not connected to any cluster; return how it ends."""
    hidden = "import sys; sys.modules['ray'] = None\n" if without_ray else ""
    program = hidden + PROGRAM.format(arguments=arguments)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    return ended.stderr.strip().splitlines()[-1]


def test_without_ray_the_error_names_what_to_install():
    assert error_of("", without_ray=True) == (
        "gristmill.errors.MissingExtraError: `RayOptions` needs the package 'ray'. Install it with "
        '`pip install "gristmill[ray]"`.'
    )


FOLDER_PROGRAM = """
import sys
{connect}
import gristmill as gm
import only_in_this_folder

loader = gm.DataLoader(
    data_source=range(4),
    sampler=gm.SequentialSampler(4, gm.NoSharding()),
    operations=[only_in_this_folder.double],
    worker_count=1,
    worker_options=gm.RayOptions(
        address=sys.argv[1], num_cpus=0.25, start_timeout_s=30.0, runtime_env={{"{field}": {value}}}
    ),
)
sys.path.remove(sys.path[0])  # the actors would find the module there, on this machine
print(list(loader))
"""


def run_in_folder(folder: Path, address: str, **parts: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose operation is a function of a module beside it."""
    (folder / "only_in_this_folder.py").write_text("def double(x):\n    return 2 * x\n")
    script = folder / "train.py"
    script.write_text(FOLDER_PROGRAM.format(**{"connect": "", **parts}))
    command = [sys.executable, str(script), address]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, cwd=folder
    )


@pytest.mark.parametrize(
    ("field", "value"), [("working_dir", '"."'), ("py_modules", '["only_in_this_folder.py"]')]
)
def test_modules_travel_with_a_runtime_environment(
    cluster: Any, tmp_path: Path, field: str, value: str
):
    ended = run_in_folder(tmp_path, cluster.address, field=field, value=value)

    assert ended.stdout == "[0, 2, 4, 6]\n", ended.stderr[-2000:]


def test_folders_cannot_travel_after_the_program_has_connected(cluster: Any, tmp_path: Path):
    ended = run_in_folder(
        tmp_path,
        cluster.address,
        connect="import ray; ray.init(sys.argv[1], log_to_driver=False)",
        field="working_dir",
        value='"."',
    )

    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-1] == (
        "gristmill.errors.WorkerError: Ray sends the folders in 'working_dir' of `runtime_env` "
        "only when it connects, but this process is connected already. Pass them to "
        "`ray.init(runtime_env=...)`, or do not call `ray.init`: the first loader with "
        "`RayOptions` connects, and sends its folders."
    )


LAPTOP_PROGRAM = """
import sys
import gristmill as gm

loader = gm.load(
    range(100), num_epochs=1, worker_count=16, worker_options=gm.RayOptions(num_cpus=0.5)
)
for _ in range(2):
    print(sum(loader), flush=True)
ds = gm.MapDataset.range(100).map(lambda x: x + 1).to_iter_dataset()
ds = ds.mp_prefetch(gm.RayOptions(num_workers=2))  # in the room that the loader has occupied
for one in (ds, loader, ds):
    print(sum(one), flush=True)
print(loader.stats(), file=sys.stderr)
"""


SUMS = ["4950", "4950", "5050", "4950", "5050"]


@pytest.fixture
def empty_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let programs see no cluster, and no token of this user."""
    with tempfile.TemporaryDirectory(prefix="gm", dir="/tmp") as folder:  # sockets need short paths
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("HOME", folder)
        monkeypatch.delenv("RAY_AUTH_MODE")
        yield Path(folder)


@pytest.mark.usefixtures("empty_home")
def test_without_a_cluster_a_local_one_serves_all_epochs_and_loaders():
    command = [sys.executable, "-c", LAPTOP_PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert ended.stdout.split() == SUMS, ended.stderr[-2000:]
    assert ended.returncode == 0
    room = 2 * len(os.sched_getaffinity(0))
    if room < 16:
        message = f"has room for {room} of 16 actors: each needs CPU 0.5, and "
        assert message in ended.stderr  # a warning
        assert message in ended.stderr.partition("waited for data")[2]  # part of `stats()`


KILLED_PROGRAM = """
import os, signal, sys
import gristmill as gm

def save(*_):
    print("saved", flush=True)
    os._exit(3)

if sys.argv[1] == "saves":
    signal.signal(signal.SIGTERM, save)
loader = gm.load(range(10**7), worker_count=1, worker_options=gm.RayOptions(num_cpus=0.5))
iterator = iter(loader)
next(iterator)
print("computing", flush=True)
for _ in iterator:
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize(
    ("program", "number", "output", "returncode"),
    [
        ("", signal.SIGTERM, "", -signal.SIGTERM),
        ("saves", signal.SIGTERM, "saved\n", 3),
    ],
    ids=["killed", "saves"],
)
def test_a_program_that_is_killed_ends_as_without_ray_and_takes_its_cluster_along(
    empty_home: Path, program: str, number: signal.Signals, output: str, returncode: int
):
    command = [sys.executable, "-c", KILLED_PROGRAM, program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "computing\n"
        assert pids_with_files_in(empty_home)
        running.send_signal(number)
        rest, errors = running.communicate(timeout=60)

    assert (rest, running.returncode) == (output, returncode)
    assert "SIGTERM" not in errors
    until(lambda: not pids_with_files_in(empty_home), "the cluster ends", seconds=20)


def ray_command(*arguments: str) -> None:
    command = [sys.executable, "-m", "ray.scripts.scripts", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_a_cluster_that_requires_a_token_is_found_and_named(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")  # attempts to connect, of a second each
    ray_command("get-auth-token", "--generate")
    head = ["start", "--head", "--port=0", "--num-cpus=2", "--include-dashboard=false"]
    ray_command(*head, f"--object-store-memory={STORE_BYTES}")
    try:
        address = (empty_home / "ray" / "ray_current_cluster").read_text()
        program = [sys.executable, "-c", LAPTOP_PROGRAM]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=110, check=False)
        message = error_of(f"address={address!r}")
    finally:
        kill_processes_of(str(empty_home))

    assert ended.stdout.split() == SUMS, ended.stderr[-2000:]
    assert f"cluster at {address!r}" in message
    assert "requires a token: set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token" in message


def test_an_address_without_a_cluster_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert error_of(f"address='127.0.0.1:{port}'") == (
        f"gristmill.errors.WorkerError: There is no Ray cluster at '127.0.0.1:{port}': connection "
        "refused. Start one there with `ray start --head`, which prints its address, or leave "
        "`address` out."
    )


def test_an_address_that_hangs_is_an_error_after_the_time_limit(silent_port: int):
    message = error_of(f"address='127.0.0.1:{silent_port}', start_timeout_s=0.2")

    assert f"at '127.0.0.1:{silent_port}': nothing answered within 0.2 s. Start one" in message


@pytest.mark.usefixtures("cluster")
def test_another_port_of_ray_is_named_at_once():
    node = ray.nodes()[0]
    address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"

    assert error_of(f"address={address!r}") == (
        f"gristmill.errors.WorkerError: There is no Ray cluster at {address!r}: another port of "
        "Ray answered, such as that of a node or of Ray Client. Use the address that `ray start "
        "--head` prints, whose port is 6379 by default, or leave `address` out."
    )


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0\2\1\4\0\0\0\1ab"]
)
def test_something_else_at_an_address_is_named(answer: bytes):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=respond)
        thread.start()
        reason = explain_no_answer(f"127.0.0.1:{server.getsockname()[1]}", 10.0)
        thread.join()

    assert reason == "something else answered"


@pytest.mark.parametrize("address", ["localhost", "host:port", "10.0.0.1:99999"])
def test_an_address_without_a_port_is_refused(address: str):
    assert explain_no_answer(address, 1.0) == 'it is not of the form "host:port"'


def test_a_cluster_answers(cluster: Any):
    assert explain_no_answer(cluster.address, 10.0) is None


@pytest.mark.usefixtures("cluster")
def test_another_cluster_than_the_connected_one_is_refused():
    with pytest.raises(WorkerError, match=r"but this process is connected to the Ray cluster at"):
        first_of(address="127.0.0.1:1")


@pytest.mark.usefixtures("cluster")
def test_a_cluster_without_room_is_an_error_that_reports_what_there_is():
    message = r"no room for an actor .* Each needs CPU 1, teapot 2, but .* has CPU 4, teapot 0"
    with pytest.raises(WorkerError, match=message):
        first_of(resources={"teapot": 2}, start_timeout_s=0.5)


@pytest.mark.usefixtures("cluster")
def test_a_module_that_a_node_lacks_is_named_with_the_node():
    module: Any = type(sys)("only_here")
    exec("def double(x): return 2 * x", vars(module))
    module.double.__module__ = "only_here"
    sys.modules["only_here"] = module
    try:
        loader = gm.DataLoader(
            data_source=range(10),
            sampler=gm.SequentialSampler(10, gm.NoSharding()),
            operations=[module.double],
            worker_count=1,
            worker_options=ray_options(),
        )
        with closing(loader), pytest.raises(ModuleNotFoundError) as caught:
            next(iter(loader))
    finally:
        del sys.modules["only_here"]

    address = ray.nodes()[0]["NodeManagerAddress"]
    notes = "\n".join(caught.value.__notes__)
    assert f"The module 'only_here' is missing on node {address}/" in notes
    assert 'RayOptions(runtime_env={"working_dir": "."})' in notes


def test_the_room_of_nodes_is_described():
    nodes = [
        {"Alive": True, "NodeManagerAddress": f"10.0.0.{n}", "Resources": {"CPU": float(n)}}
        for n in range(1, 8)
    ]
    assert explain_room(nodes, {"CPU": 9}).endswith("10.0.0.5 has CPU 5; ...")
    assert has_node_for(nodes, {"CPU": 7})
    assert not has_node_for(nodes, {"CPU": 8})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_workers": 0}, PlanError, "`num_workers` must be at least 1, got 0."),
        ({"address": 5}, PlanTypeError, "`address` must be a string, got 5."),
        ({"address": "ray://head:10001"}, PlanError, "Ray Client is not supported"),
        ({"num_cpus": -1}, PlanError, "`num_cpus` must be at least 0 and finite, got -1."),
        ({"num_cpus": "1"}, PlanTypeError, "`num_cpus` must be a number, got '1'."),
        ({"resources": ["x"]}, PlanTypeError, "`resources` must be a dict"),
        ({"resources": {"x": None}}, PlanTypeError, r'`resources\["x"\]` must be a number'),
        ({"runtime_env": "x"}, PlanTypeError, "`runtime_env` must be a dict"),
        ({"min_workers": 3, "max_workers": 2}, PlanError, "`max_workers` must be at least"),
        ({"shared_pool": ""}, PlanTypeError, "`shared_pool` must be a string"),
    ],
)
def test_options_are_checked(arguments: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        gm.RayOptions(**arguments)


@pytest.mark.parametrize(
    ("worker_count", "num_workers", "message"),
    [(0, 4, "asks for actors. Pass `worker_count=4`"), (2, 4, "Pass one of them only")],
)
def test_two_numbers_of_workers_are_refused(worker_count: int, num_workers: int, message: str):
    with pytest.raises(PlanError, match=message):
        gm.DataLoader(
            data_source=range(10),
            sampler=gm.SequentialSampler(10, gm.NoSharding()),
            worker_count=worker_count,
            worker_options=gm.RayOptions(num_workers=num_workers),
        )


def test_secrets_in_a_runtime_environment_are_not_shown():
    assert "hunter2" not in repr(gm.RayOptions(runtime_env={"env_vars": {"KEY": "hunter2"}}))
