"""A real worker for the tests: another interpreter, which runs what it is sent."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gristmill._engine.executors.serialization.remote_error import load_error
from gristmill._engine.executors.serialization.serialize import dump_plan, load, out_of_band

InWorker = Callable[..., Any]

WORKER = """
import pickle, sys
from gristmill._engine.executors.serialization.remote_error import dump_error
from gristmill._engine.executors.serialization.serialize import Sender, load

line, sys.stdout = sys.stdout.buffer, sys.stderr
while True:
    try:
        payload, buffers = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        function, arguments = load(payload, buffers)
        sent, out = Sender().dump(function(*arguments))
        answer = True, sent, [bytearray(buffer.raw()) for buffer in out]
    except BaseException as error:
        answer = False, dump_error(error, where="Traceback in worker 1"), []
    pickle.dump(answer, line)
    line.flush()
"""


@pytest.fixture(scope="session")
def in_worker() -> Iterator[InWorker]:
    """Yield a function that calls another in a worker: `in_worker(function, *arguments)`.

    What it calls must be defined in the test, so that it goes by value: a worker does not import
    the tests.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    to_worker, from_worker = process.stdin, process.stdout
    assert to_worker is not None
    assert from_worker is not None

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        buffers: list[pickle.PickleBuffer] = []
        payload = dump_plan(
            (function, arguments), buffer_callback=out_of_band(buffers, smallest=1024)
        )
        pickle.dump((bytes(payload), [bytearray(buffer.raw()) for buffer in buffers]), to_worker)
        to_worker.flush()
        is_well, answer, parts = pickle.load(from_worker)
        if not is_well:
            raise load_error(answer)
        return load(answer, parts)

    with process:
        yield call
        to_worker.close()
