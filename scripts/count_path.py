"""Count the modules and folders that a record passes through with two workers.

    python scripts/count_path.py [--list]

The loader reads, maps and batches records for a caller that trains between batches. After some
seconds, each thread of this process and the main thread of a worker record for about 100 blocks
which module calls which. Before and after that they run at full speed, so that the tuner chooses
what it would choose in a training. Calls that most blocks do without are left out. The counts are
those of a reader who follows each call from one module to another once:

- files: the modules
- crossings: the calls that lead into another folder
- returns: the calls that lead to a module that was read before
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import gristmill

PACKAGE = Path(gristmill.__file__).parent.as_posix()
BATCH_SIZE, TRAINING_S, RECORD_S = 8, 0.002, 0.0001
RECORDED = range(20_000, 30_000)
"""The records during which calls are recorded: for about 100 blocks, after some seconds."""

MIN_CALLS = 10

Call = tuple[str, str]
"""The module of a function, and that of another one that it calls."""


class Recorder:
    """Counts the calls from one module to another in one thread."""

    def __init__(self) -> None:
        self.counts: Counter[Call] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = module_of(frame)
        if event != "call" or module is None or frame.f_code.co_name == "<genexpr>":
            return
        caller = frame.f_back
        while caller is not None and module_of(caller) is None:  # functions of Python or the user
            caller = caller.f_back
        if caller is not None:
            self.counts[module_of(caller) or "", module] += 1


def module_of(frame: FrameType) -> str | None:
    """Return the path of the module of a frame in gristmill, or `None` if it is elsewhere."""
    path = frame.f_code.co_filename
    return path.removeprefix(f"{PACKAGE}/") if path.startswith(PACKAGE) else None


class Records:
    """A source that starts and stops recording in the worker that reads it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return RECORDED.stop + len(RECORDED)

    def __getitem__(self, index: int) -> int:
        recorder = sys.getprofile()
        if index in RECORDED:
            if recorder is None:
                sys.setprofile(Recorder())
        elif isinstance(recorder, Recorder):
            sys.setprofile(None)
            path = Path(self._folder, f"{threading.get_native_id()}.json")
            path.write_text(json.dumps(list(recorder.counts.items())))
        return index


def add_one(record: int) -> int:
    """Return the next number, after as much work as decoding a small image takes."""
    end = time.perf_counter() + RECORD_S
    while time.perf_counter() < end:
        pass
    return record + 1


def recorded_calls() -> Counter[Call]:
    """Return the calls of all threads of this process, and of one worker."""
    recorder, is_recording = Recorder(), False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if is_recording:
            recorder(frame, event, argument)

    threading.setprofile(profile)  # for threads that start from now on
    with tempfile.TemporaryDirectory() as folder:
        source = Records(folder)
        loader = gristmill.DataLoader(
            data_source=source,
            sampler=gristmill.IndexSampler(len(source), num_epochs=1, seed=0),
            operations=[add_one, gristmill.Batch(BATCH_SIZE)],
            worker_count=2,
            read_options=gristmill.ReadOptions(num_threads=0),
        )
        for batch in loader:
            is_recording = batch[-1] - 1 in RECORDED
            sys.setprofile(profile if is_recording else None)
            time.sleep(TRAINING_S)
        worker = min(Path(folder).iterdir())
        counts = recorder.counts
        counts.update({tuple(call): count for call, count in json.loads(worker.read_text())})
    return counts


def main(arguments: list[str]) -> int:
    """Print the three counts and, on request, the calls."""
    parser = argparse.ArgumentParser(description="Count what a record passes through.")
    parser.add_argument("--list", action="store_true", help="print the calls, too")
    prints_calls = parser.parse_args(arguments).list
    calls = [
        (caller, module)
        for (caller, module), count in sorted(recorded_calls().items())
        if caller != module and count >= MIN_CALLS
    ]
    modules = {module for call in calls for module in call}
    crossings = [call for call in calls if Path(call[0]).parent != Path(call[1]).parent]
    if prints_calls:
        for call in calls:
            sys.stdout.write(f"{call[0]} -> {call[1]}{' *' if call in crossings else ''}\n")
    num_returns = len(calls) - (len(modules) - 1)
    sys.stdout.write(f"{len(modules)} files, {len(crossings)} crossings, {num_returns} returns\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
