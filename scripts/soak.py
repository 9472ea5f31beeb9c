"""Stress test of worker processes: random scenarios with crashes, interrupts and early exits.

    python scripts/soak.py --minutes 5

Each round runs one of the scenarios below, chosen at random from `--seed`. Streams must equal those
without workers. After each round, no process, thread, file descriptor or shared memory may be left.
The first failure ends the program with the number of the round.
"""

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gristmill import (
    Batch,
    DataLoader,
    Filter,
    FlatMap,
    IndexSampler,
    RandomMap,
    SkipErrors,
    WorkerOptions,
)

NUM_RECORDS = 400
ROUND_TIMEOUT_S = 120.0
"""A round that takes longer ends the program, with the stacks of all threads."""

CLEAR_LINE = "\r\x1b[K" if sys.stdout.isatty() else ""


class Noise(RandomMap):
    """Adds random pixels to a record, and many of them to some records."""

    def random_map(self, element: int, rng: np.random.Generator) -> dict[str, Any]:
        size = 60_000 if element % 50 == 7 else 2000
        return {"n": element, "x": rng.random(size, np.float32).reshape(-1, 100)[:20]}


class DropSome(Filter):
    """Drops one record in seven."""

    def filter(self, element: dict[str, Any]) -> bool:
        return element["n"] % 7 != 3


class RepeatOdd(FlatMap):
    """Repeats odd records."""

    max_fan_out = 2

    def flat_map(self, element: dict[str, Any]) -> list[dict[str, Any]]:
        return [element] * (1 + element["n"] % 2)


def enlarge(element: int) -> np.ndarray:
    """Turn a record into 200 kB."""
    return np.full(25_000, element)


def fail_sometimes(element: int) -> int:
    """Raise an error for one record in forty."""
    if element % 40 == 11:
        raise ValueError(f"record {element} is bad")
    return element


PIPELINES: dict[str, tuple[Any, ...]] = {
    "small": (),
    "batches": (Batch(8),),
    "random": (Noise(), DropSome(), RepeatOdd(), Batch(5)),
    "large": (enlarge, Batch(4)),
    "skips": (fail_sometimes, Batch(6)),
}


def loader(name: str, worker_count: int, **arguments: Any) -> DataLoader:
    """Return a loader of one of the pipelines."""
    if name == "skips":
        arguments["on_error"] = SkipErrors(budget=50)
    return DataLoader(
        data_source=range(NUM_RECORDS),
        sampler=IndexSampler(NUM_RECORDS, shuffle=True, seed=1, num_epochs=1),
        operations=PIPELINES[name],
        worker_count=worker_count,
        worker_options=WorkerOptions(max_restarts=10_000),
        **arguments,
    )


@cache
def expected(name: str) -> list[str]:
    """Return the fingerprints of the elements of a pipeline without workers."""
    return [fingerprint(element) for element in loader(name, 0)]


def fingerprint(element: Any) -> str:
    """Return a short string that identifies an element."""
    if isinstance(element, dict):
        return json.dumps({key: fingerprint(value) for key, value in element.items()})
    array = np.asarray(element)
    return f"{array.dtype}{array.shape}{hash(array.tobytes())}"


# Scenarios. Each gets a random generator and checks its elements.


def drain(rng: random.Random) -> None:
    """Read a stream to its end."""
    name = rng.choice(list(PIPELINES))
    count, size = rng.choice([1, 2, 3, 5]), rng.randrange(5)
    seen = [fingerprint(element) for element in loader(name, count, worker_buffer_size=size)]
    assert seen == expected(name), f"{name} with {count} workers"


def leave_early(rng: random.Random) -> None:
    """Leave a loop after some elements, four times."""
    name = rng.choice(list(PIPELINES))
    for _ in range(4):
        num_elements = rng.randrange(1, 20)
        seen: list[str] = []
        for element in loader(name, 2):
            seen.append(fingerprint(element))
            if len(seen) == num_elements:
                break
        assert seen == expected(name)[:num_elements], name


def close_at_any_moment(rng: random.Random) -> None:
    """Close an iterator between its start and its first elements."""
    for _ in range(4):
        iterator = iter(loader("large", 2))
        iterator.start_prefetch()
        time.sleep(rng.choice([0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.5)]))
        iterator.close()


def drop_at_any_moment(rng: random.Random) -> None:
    """Delete an iterator between its start and its first elements."""
    for _ in range(4):
        iterator = iter(loader("random", 2))
        iterator.start_prefetch()
        time.sleep(rng.choice([0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.5)]))
        del iterator


def kill_workers(rng: random.Random) -> None:
    """Kill workers at random moments while a stream is read."""
    name = rng.choice(list(PIPELINES))
    iterator, seen = iter(loader(name, 2)), list[str]()
    iterator.start_prefetch()
    num_young = 0
    for _ in range(rng.randrange(1, 12)):
        time.sleep(rng.uniform(0, 0.5))
        for pid in workers():
            is_young = age_s(pid) < 1.0  # three failed starts are an error, as intended
            if rng.random() < 0.4 and (num_young < 2 or not is_young):
                kill(pid)
                num_young += is_young
        seen += map(fingerprint, islice(iterator, rng.randrange(8)))
    seen += map(fingerprint, iterator)
    assert seen == expected(name), f"{name} with {iterator.stats().num_restarts} restarts"


def restore_states(rng: random.Random) -> None:
    """Restore earlier states of a stream while workers are killed, then resume once more."""
    name = rng.choice([name for name in PIPELINES if name != "skips"])
    iterator, states = iter(loader(name, 2)), dict[int, bytes]()
    position = 0
    for _ in range(8):
        states[position] = iterator.get_state()
        got = [fingerprint(element) for element in islice(iterator, rng.randrange(30))]
        assert got == expected(name)[position : position + len(got)], name
        if rng.random() < 0.3:
            for pid in workers()[:1]:
                kill(pid)
        position = rng.choice(list(states))
        iterator.set_state(states[position])
    resumed = iter(loader(name, rng.choice([0, 1, 3])))
    resumed.set_state(iterator.get_state())
    assert [fingerprint(element) for element in resumed] == expected(name)[position:], name


def keep_batches(rng: random.Random) -> None:
    """Keep some batches after the end of the stream, and check that they are unchanged."""
    held: list[tuple[str, Any]] = []
    for element in loader("large", 2):
        if rng.random() < 0.5:
            held.append((fingerprint(element), element))
        if held and rng.random() < 0.3:
            del held[rng.randrange(len(held))]
    gc.collect()
    assert all(fingerprint(element) == before for before, element in held)


def run_several(rng: random.Random) -> None:
    """Read several streams at the same time, each in a thread."""
    names = [rng.choice(list(PIPELINES)) for _ in range(3)]
    seen: dict[int, list[str]] = {}

    def run(number: int) -> None:
        seen[number] = [fingerprint(element) for element in loader(names[number], 1)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seen[number] for number in range(3)] == [expected(name) for name in names]


def interrupt(rng: random.Random) -> None:
    """Send Ctrl-C at random times, and continue with the same iterator each time."""
    name = rng.choice(list(PIPELINES))
    is_over = threading.Event()
    delays_s = [rng.uniform(0, 0.2) for _ in range(rng.randrange(1, 8))]

    def send_interrupts() -> None:
        for delay_s in delays_s:
            if is_over.wait(delay_s):
                return
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send_interrupts)
    iterator, seen = iter(loader(name, 2)), list[str]()
    num_interrupts = 0
    sender.start()
    while sender.is_alive() or len(seen) + num_interrupts < len(expected(name)):
        try:
            seen.extend(map(fingerprint, iterator))
            is_over.set()
            sender.join()
        except KeyboardInterrupt:
            num_interrupts += 1
            assert num_interrupts <= len(delays_s)
    # An interrupt may drop the element that this loop was receiving, but not one of the stream.
    remaining = iter(expected(name))
    assert all(element in remaining for element in seen), f"{name}: repeated or out of order"
    assert len(seen) >= len(expected(name)) - num_interrupts, f"{name}: lost"


SCENARIOS: list[Callable[[random.Random], None]] = [
    drain, leave_early, close_at_any_moment, drop_at_any_moment, kill_workers, restore_states,
    keep_batches, run_several, interrupt,
]  # fmt: skip


# Resources that must not be left.


def workers() -> list[int]:
    """Return the ids of the running child processes."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid() and state not in "ZX":
                found.append(int(folder.name))
    return found


def kill(pid: int) -> None:
    """Kill a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def age_s(pid: int) -> float:
    """Return how long a process has been running."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def count_resources() -> dict[str, int]:
    """Count the resources that could leak."""
    maps = Path("/proc/self/maps").read_text()
    return {
        "workers": len(workers()),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared memory": maps.count("memfd:gristmill"),
    }


def memory_bytes() -> int:
    """Return the private memory of this process, without free memory that is cached."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def check_no_leaks(before: dict[str, int]) -> None:
    """Wait until all resources are released; fail if some are left after 2 seconds."""
    deadline = time.monotonic() + 2.0
    gc.collect()
    while (now := count_resources()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    assert now == before, f"leaked: {now}, before: {before}"


def rounds(seed: int, end: float) -> Iterator[tuple[int, Callable[[random.Random], None]]]:
    """Yield a number and a scenario until the time is over."""
    rng = random.Random(seed)
    number = 0
    while time.monotonic() < end:
        yield number, rng.choice(SCENARIOS)
        number += 1


def print_line(line: str, *, end: str = "\n") -> None:
    """Print a line without buffering; on a terminal, overwrite the current line."""
    sys.stdout.write(f"{CLEAR_LINE}{line}{end}")
    sys.stdout.flush()


def main() -> None:
    """Run rounds until the time is over, and print a summary."""
    parser = argparse.ArgumentParser(description="Run a stress test of worker processes.")
    parser.add_argument("--minutes", type=float, default=5.0, help="duration (default: 5)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="seed (default: from the clock)"
    )
    options = parser.parse_args()
    logging.getLogger("gristmill").setLevel(logging.ERROR)  # it logs every skipped record
    for name in PIPELINES:
        expected(name)
    drain(random.Random(0))
    gc.collect()
    before, memory = count_resources(), memory_bytes()
    began = time.monotonic()
    done: Counter[str] = Counter()
    spent: defaultdict[str, float] = defaultdict(float)
    print_line(f"seed {options.seed}, {options.minutes:g} minutes, resources before: {before}")
    for number, scenario in rounds(options.seed, began + 60 * options.minutes):
        faulthandler.dump_traceback_later(ROUND_TIMEOUT_S, exit=True)
        round_began = time.monotonic()
        try:
            scenario(random.Random(f"{options.seed} {number}"))
            check_no_leaks(before)
        except BaseException:
            print_line(f"round {number}, {scenario.__name__}, seed {options.seed}: failed")
            raise
        done[scenario.__name__] += 1
        spent[scenario.__name__] += time.monotonic() - round_began
        seconds = time.monotonic() - began
        if CLEAR_LINE or number % 20 == 0:
            line = f"{seconds:6.0f} s  {done.total():5} rounds  {scenario.__name__}"
            print_line(line, end="" if CLEAR_LINE else "\n")
    faulthandler.cancel_dump_traceback_later()
    print_line(f"{done.total()} rounds in {time.monotonic() - began:.0f} s, no leaks.")
    for name, count in done.most_common():
        print_line(f"  {name:20} {count:5} rounds {spent[name] / count:6.2f} s each")
    print_line(f"  memory of this process: {(memory_bytes() - memory) / 2**20:+.1f} MB")


if __name__ == "__main__":
    main()
