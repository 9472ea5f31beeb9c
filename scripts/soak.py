"""Soak the worker processes: for some minutes everything that can happen to them happens.

    python scripts/soak.py --minutes 5

Each round is one of the scenarios below, chosen at random from `--seed`. After every round nothing
may be left: no process, thread, file descriptor or shared memory, and the streams must have been
those without workers. The first thing that is wrong ends it, with the number of the round.
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
HANGS_AFTER_S = 120.0
"""A round that takes longer ends the program, with the stacks of all threads."""

LINE = "\r\x1b[K" if sys.stdout.isatty() else ""


class Noise(RandomMap):
    """Give a record some random pixels, of which there are many now and then."""

    def random_map(self, element: int, rng: np.random.Generator) -> dict[str, Any]:
        size = 60_000 if element % 50 == 7 else 2000
        return {"n": element, "x": rng.random(size, np.float32).reshape(-1, 100)[:20]}


class Some(Filter):
    """Leave out one in seven."""

    def filter(self, element: dict[str, Any]) -> bool:
        return element["n"] % 7 != 3


class Twice(FlatMap):
    """Give odd ones twice."""

    max_fan_out = 2

    def flat_map(self, element: dict[str, Any]) -> list[dict[str, Any]]:
        return [element] * (1 + element["n"] % 2)


def grow(element: int) -> np.ndarray:
    """Make 200 kB of a record."""
    return np.full(25_000, element)


def fail_now_and_then(element: int) -> int:
    """Raise for one in forty."""
    if element % 40 == 11:
        raise ValueError(f"record {element} is bad")
    return element


PIPELINES: dict[str, tuple[Any, ...]] = {
    "small": (),
    "batches": (Batch(8),),
    "random": (Noise(), Some(), Twice(), Batch(5)),
    "large": (grow, Batch(4)),
    "skips": (fail_now_and_then, Batch(6)),
}


def loader(name: str, worker_count: int, **arguments: Any) -> DataLoader:
    """Give a loader of one of the pipelines."""
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
    """Give what a pipeline makes without workers."""
    return [told(element) for element in loader(name, 0)]


def told(element: Any) -> str:
    """Give what tells an element from another, in few bytes."""
    if isinstance(element, dict):
        return json.dumps({key: told(value) for key, value in element.items()})
    array = np.asarray(element)
    return f"{array.dtype}{array.shape}{hash(array.tobytes())}"


# Scenarios: each takes a source of chance, and checks what it sees.


def drain(chance: random.Random) -> None:
    """Read a stream to its end."""
    name = chance.choice(list(PIPELINES))
    count, size = chance.choice([1, 2, 3, 5]), chance.randrange(5)
    seen = [told(element) for element in loader(name, count, worker_buffer_size=size)]
    assert seen == expected(name), f"{name} with {count} workers"


def leave_early(chance: random.Random) -> None:
    """Leave a loop after some elements, and begin another, four times."""
    name = chance.choice(list(PIPELINES))
    for _ in range(4):
        wanted = chance.randrange(1, 20)
        seen: list[str] = []
        for element in loader(name, 2):
            seen.append(told(element))
            if len(seen) == wanted:
                break
        assert seen == expected(name)[:wanted], name


def close_at_any_moment(chance: random.Random) -> None:
    """Close an iterator between its start and its first elements."""
    for _ in range(4):
        iterator = iter(loader("large", 2))
        iterator.start_prefetch()
        time.sleep(chance.choice([0.0, chance.uniform(0, 0.02), chance.uniform(0, 0.5)]))
        iterator.close()


def drop_at_any_moment(chance: random.Random) -> None:
    """Let go of an iterator between its start and its first elements."""
    for _ in range(4):
        iterator = iter(loader("random", 2))
        iterator.start_prefetch()
        time.sleep(chance.choice([0.0, chance.uniform(0, 0.02), chance.uniform(0, 0.5)]))
        del iterator


def kill_workers(chance: random.Random) -> None:
    """Kill workers at random moments while a stream is read."""
    name = chance.choice(list(PIPELINES))
    iterator, seen = iter(loader(name, 2)), list[str]()
    iterator.start_prefetch()
    num_young = 0
    for _ in range(chance.randrange(1, 12)):
        time.sleep(chance.uniform(0, 0.5))
        for pid in workers():
            is_young = age_s(pid) < 1.0  # three that die as they start are an error, and rightly
            if chance.random() < 0.4 and (num_young < 2 or not is_young):
                kill(pid)
                num_young += is_young
        seen += map(told, islice(iterator, chance.randrange(8)))
    seen += map(told, iterator)
    assert seen == expected(name), f"{name} with {iterator.stats().restarts} restarts"


def move_about(chance: random.Random) -> None:
    """Go to and fro in a stream, among deaths, and take it up without workers."""
    name = chance.choice([name for name in PIPELINES if name != "skips"])
    iterator, states = iter(loader(name, 2)), dict[int, bytes]()
    place = 0
    for _ in range(8):
        states[place] = iterator.get_state()
        got = [told(element) for element in islice(iterator, chance.randrange(30))]
        assert got == expected(name)[place : place + len(got)], name
        if chance.random() < 0.3:
            for pid in workers()[:1]:
                kill(pid)
        place = chance.choice(list(states))
        iterator.set_state(states[place])
    resumed = iter(loader(name, chance.choice([0, 1, 3])))
    resumed.set_state(iterator.get_state())
    assert [told(element) for element in resumed] == expected(name)[place:], name


def keep_batches(chance: random.Random) -> None:
    """Keep some batches beyond the end of everything, and look at them again."""
    kept: list[tuple[str, Any]] = []
    for element in loader("large", 2):
        if chance.random() < 0.5:
            kept.append((told(element), element))
        if kept and chance.random() < 0.3:
            del kept[chance.randrange(len(kept))]
    gc.collect()
    assert all(told(element) == text for text, element in kept)


def run_several(chance: random.Random) -> None:
    """Read several streams at once, each in a thread."""
    names = [chance.choice(list(PIPELINES)) for _ in range(3)]
    seen: dict[int, list[str]] = {}

    def run(number: int) -> None:
        seen[number] = [told(element) for element in loader(names[number], 1)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seen[number] for number in range(3)] == [expected(name) for name in names]


def interrupt(chance: random.Random) -> None:
    """Press Ctrl-C at random moments, and go on with the same iterator each time."""
    name = chance.choice(list(PIPELINES))
    is_over = threading.Event()
    moments = [chance.uniform(0, 0.2) for _ in range(chance.randrange(1, 8))]

    def press() -> None:
        for moment in moments:
            if is_over.wait(moment):
                return
            os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    iterator, seen = iter(loader(name, 2)), list[str]()
    num_interrupts = 0
    presser.start()
    while presser.is_alive() or len(seen) + num_interrupts < len(expected(name)):
        try:
            seen.extend(map(told, iterator))
            is_over.set()
            presser.join()
        except KeyboardInterrupt:
            num_interrupts += 1
            assert num_interrupts <= len(moments)
    # One that was just being handed over may be lost by this loop, never by the stream.
    rest = iter(expected(name))
    assert all(text in rest for text in seen), f"{name}: repeated, or out of order"
    assert len(seen) >= len(expected(name)) - num_interrupts, f"{name}: lost"


SCENARIOS: list[Callable[[random.Random], None]] = [
    drain, leave_early, close_at_any_moment, drop_at_any_moment, kill_workers, move_about,
    keep_batches, run_several, interrupt,
]  # fmt: skip


# What must not be left.


def workers() -> list[int]:
    """Give the processes that this one has started and that run."""
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
    """Kill a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def age_s(pid: int) -> float:
    """Say for how long a process has run."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def belongings() -> dict[str, int]:
    """Count what could be left behind."""
    maps = Path("/proc/self/maps").read_text()
    return {
        "workers": len(workers()),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared memory": maps.count("memfd:gristmill"),
    }


def memory_bytes() -> int:
    """Give how much memory this process has to itself, without what is free but kept warm."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def check_nothing_left(before: dict[str, int]) -> None:
    """Wait for what is on its way out; what is still there then is left behind."""
    deadline = time.monotonic() + 2.0
    gc.collect()
    while (now := belongings()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    assert now == before, f"left behind: {now}, before it was {before}"


def rounds(seed: int, end: float) -> Iterator[tuple[int, Callable[[random.Random], None]]]:
    """Give scenarios until the time is over."""
    chance = random.Random(seed)
    number = 0
    while time.monotonic() < end:
        yield number, chance.choice(SCENARIOS)
        number += 1


def say(text: str, *, end: str = "\n") -> None:
    """Print something at once; on a terminal in place of what was there."""
    sys.stdout.write(f"{LINE}{text}{end}")
    sys.stdout.flush()


def main() -> None:
    """Run rounds until the time is over, and sum up."""
    parser = argparse.ArgumentParser(description="Soak the worker processes.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    logging.getLogger("gristmill").setLevel(logging.ERROR)  # else it tells of every skip
    for name in PIPELINES:
        expected(name)
    drain(random.Random(0))
    gc.collect()
    before, memory = belongings(), memory_bytes()
    began = time.monotonic()
    done: Counter[str] = Counter()
    spent: defaultdict[str, float] = defaultdict(float)
    say(f"seed {options.seed}, {options.minutes:g} minutes, at first {before}")
    for number, scenario in rounds(options.seed, began + 60 * options.minutes):
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        round_began = time.monotonic()
        try:
            scenario(random.Random(f"{options.seed} {number}"))
            check_nothing_left(before)
        except BaseException:
            say(f"round {number}, {scenario.__name__}, seed {options.seed}: failed")
            raise
        done[scenario.__name__] += 1
        spent[scenario.__name__] += time.monotonic() - round_began
        seconds = time.monotonic() - began
        if LINE or number % 20 == 0:
            text = f"{seconds:6.0f} s  {done.total():5} rounds  {scenario.__name__}"
            say(text, end="" if LINE else "\n")
    faulthandler.cancel_dump_traceback_later()
    say(f"{done.total()} rounds in {time.monotonic() - began:.0f} s, nothing left behind.")
    for name, count in done.most_common():
        say(f"  {name:20} {count:5} rounds {spent[name] / count:6.2f} s each")
    say(f"  memory of this process: {(memory_bytes() - memory) / 2**20:+.1f} MB")


if __name__ == "__main__":
    main()
