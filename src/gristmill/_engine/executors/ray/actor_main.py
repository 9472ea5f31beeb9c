"""What runs in an actor: it loads the plans, and computes the ranges that the parent requests."""

import gc
import os
import pickle
import time
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill._base.memory.aligned_alloc import keep_memory_warm
from gristmill._engine.executors.pools.job import Job, load_jobs
from gristmill._engine.executors.pools.open_job import OpenJob, Probe
from gristmill._engine.executors.ray.messages import ActorInit, BlockHeader, Started
from gristmill._engine.executors.ray.missing import find_missing, missing_skips
from gristmill._engine.executors.serialization.block_codec import (
    BlockEncoder,
    BlockTimes,
    EncodedBlock,
)
from gristmill._engine.executors.serialization.log_relay import (
    RelayedLog,
    install_relay,
)
from gristmill._engine.executors.serialization.remote_error import dump_error
from gristmill._engine.executors.serialization.serialize import load_each

PackedBlock: TypeAlias = tuple[bytes, list[NDArray[np.uint8]] | None]
"""A pickled `BlockHeader`, and the buffers of a block if they are large."""

MAX_INLINE_BYTES = 65_536
"""Smaller blocks are part of the reply. Larger ones go through the object store."""


def start(payload: Sequence[Any], init: bytes) -> "tuple[ActorWorker | None, bytes]":
    """Load the plans in an actor.

    Args:
        payload: A reference to the pickled plans and their buffers.
        init: A pickled `ActorInit`.

    Returns:
        The worker, unless the plans cannot be loaded, and a pickled `Started`.
    """
    ray: Any = load_extra("ray", extra="ray", wanted_by="an actor")
    context = ray.get_runtime_context()
    node_id = context.get_node_id()
    node = f"{ray.util.get_node_ip_address()}/{node_id[:8]}"  # several may have one address
    settings: ActorInit = pickle.loads(init)
    logs: list[RelayedLog] = []
    install_relay(settings.relay_settings, logs.append, settings.worker)
    keep_memory_warm()
    name = f"worker {settings.worker} on node {node}"
    worker, error = None, None
    try:
        worker = ActorWorker(_load_jobs(ray.get(payload[0]), settings), name, logs)
        gc.freeze()  # what is imported by now stays: a search through PyTorch takes 80 ms
    except BaseException as problem:
        _add_node(problem, node)
        error = dump_error(problem, where=f"Starting {name}")
    started = Started(node_id, node, error, tuple(logs))
    logs.clear()
    return worker, pickle.dumps(started)


def _load_jobs(chunks: Sequence[NDArray[np.uint8]], settings: ActorInit) -> Sequence[Job]:
    # The object store is read-only, and shared with other actors. User code may write to the
    # arrays of its source, so an actor has its own.
    return load_jobs(
        load_each(chunks[0], [chunk.copy() for chunk in chunks[1:]]),
        worker=settings.worker,
        num_workers=settings.num_workers,
        pytrees=settings.pytrees,
        relay_settings=settings.relay_settings,
    )


@final
class ActorWorker:
    """Computes ranges and encodes their blocks.

    Args:
        jobs: The plans.
        name: The name of the worker and its node, for tracebacks.
        logs: What was logged and not yet sent.
    """

    def __init__(self, jobs: Sequence[Job], name: str, logs: list[RelayedLog]) -> None:
        policy = jobs[0].policy  # all jobs of a pool have the same
        self._name = name
        self._node = name.rpartition(" ")[2]
        self._logs = logs
        self._message_bytes = policy.message_bytes
        self._max_inline_bytes = min(MAX_INLINE_BYTES, policy.in_band_bytes)
        self._encoder = BlockEncoder(policy, name)
        self._jobs = [OpenJob(job) for job in jobs]

    def compute(
        self, number: int, positions: range
    ) -> tuple[bytes, list[NDArray[np.uint8]] | None]:
        """Return the header of a block, and its buffers if they are large."""
        job = self._jobs[number]
        begin = time.perf_counter()
        times, missing = BlockTimes(), ""
        try:
            result = job.read(positions)
            if result.error is not None:
                _add_node(result.error, self._node)
            for skip in missing_skips(result):
                _add_node(skip.error, self._node)
                missing = missing or skip.record.error
            computed_at = time.perf_counter()
            block = self._encoder.encode(job.cut, result)
            now = time.perf_counter()
            times = BlockTimes(
                result.step_times,
                now - begin,
                now - computed_at,
                began_at=begin,
                worker=self._name,
                process=os.getpid(),
                work=result.work,
            )
        except BaseException as error:  # no memory, a mistake of ours, KeyboardInterrupt of users
            _add_node(error, self._node)
            block = self._encoder.encode_failure(job.cut, error)
        return self._pack(block, times, missing)

    def _pack(self, block: EncodedBlock, times: BlockTimes, missing: str) -> PackedBlock:
        buffers = [np.frombuffer(buffer.raw(), np.uint8) for buffer in block.buffers]
        content: bytes | None = block.content
        if len(block.content) > self._max_inline_bytes or (
            buffers and len(block.content) > self._message_bytes
        ):
            buffers.append(np.frombuffer(block.content, np.uint8))
            content = None
        num_bytes = sum(buffer.nbytes for buffer in buffers)
        logs = tuple(self._logs)
        del self._logs[: len(logs)]
        header = BlockHeader(content, num_bytes, block.error, times, missing, logs)
        return pickle.dumps(header, 5), buffers or None

    def probe(self, number: int, position: int, record: int | None) -> None:
        """Compute a record or an element, whose result does not matter."""
        self._jobs[number].run_probe(Probe(position, record))


def _add_node(error: BaseException, node: str) -> None:
    """Name the node in an error that is likely to come from what is installed or stored there."""
    missing = find_missing(error)
    if isinstance(missing, ModuleNotFoundError):
        error.add_note(
            f"The module {missing.name!r} is missing on node {node}. Install it there, or pass "
            'RayOptions(runtime_env={"working_dir": "."}) or {"py_modules": [...]}.'
        )
    elif missing is not None:
        error.add_note(
            f"The file is missing on node {node}. Put it where all nodes can read it, such as a "
            "shared file system or an object store."
        )
