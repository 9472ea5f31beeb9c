"""The log of a run: one line at its start, one at its end, decisions at DEBUG, no noise."""

import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from tests.policies import TRIES_AT_ONCE, with_policy


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.fixture(autouse=True)
def at_debug(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.DEBUG, logger="gristmill"):
        yield


NO_THREADS = gm.ReadOptions(num_threads=0)
FOUR_THREADS = gm.ReadOptions(num_threads=4, prefetch_buffer_size=8)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"read_options": NO_THREADS}, "in this process."),
        ({"read_options": FOUR_THREADS}, "in this process with up to 4 threads."),
        ({"worker_count": 1}, "in 1 worker process."),
        ({"worker_count": 2}, "in 2 worker processes."),
        ({"worker_count": None}, "where it is measured to be fastest: in this process, in threads "
                                 "or in workers."),
    ],
)  # fmt: skip
def test_a_loader_logs_one_line_at_the_start_and_one_at_the_end(
    arguments: dict[str, Any], place: str, caplog: pytest.LogCaptureFixture
):
    with gm.load(range(10), num_epochs=1, batch_size=4, **arguments) as loader:
        list(loader)

    started, ended = lines(caplog)
    steps = "range(0, 10) -> IndexSampler -> Batch(4)"
    assert started == f"Started {steps}, {place}"
    assert ended.startswith(f"Ended {steps}: waited for data ")
    assert ended.endswith("s, 3 elements.")
    assert {record.name for record in caplog.records} == {"gristmill"}


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda ds: ds.to_iter_dataset(NO_THREADS), "in this process."),
        (lambda ds: ds.to_iter_dataset(FOUR_THREADS), "in this process with up to 4 threads."),
        (
            lambda ds: ds.to_iter_dataset().mp_prefetch(gm.MultiprocessingOptions(num_workers=2)),
            "in 2 worker processes.",
        ),
    ],
)
def test_a_dataset_does_the_same(make: Any, place: str, caplog: pytest.LogCaptureFixture):
    dataset = make(gm.MapDataset.range(6))
    with iter(dataset) as iterator:
        assert list(iterator) == list(range(6))

    started, ended = lines(caplog)
    assert started.endswith(place)
    assert ended.endswith("6 elements.")


def test_mixed_streams_are_one_run(caplog: pytest.LogCaptureFixture):
    streams = [gm.MapDataset.range(4).to_iter_dataset() for _ in range(3)]
    list(gm.IterDataset.mix(streams))
    assert len(lines(caplog)) == 2


def test_reading_one_element_of_a_dataset_logs_nothing(caplog: pytest.LogCaptureFixture):
    assert gm.MapDataset.range(5).map(str)[2] == "2"
    assert caplog.records == []


def test_an_iterator_that_is_closed_early_has_ended(caplog: pytest.LogCaptureFixture):
    with iter(gm.load(range(10), batch_size=2)) as iterator:
        next(iterator)
    iterator.close()

    assert [line.partition(" ")[0] for line in lines(caplog)] == ["Started", "Ended"]
    assert lines(caplog)[1].endswith("1 element.")


def test_an_iterator_that_is_never_used_logs_nothing(caplog: pytest.LogCaptureFixture):
    with iter(gm.load(range(10), num_epochs=1)):
        pass
    assert lines(caplog) == []


def test_asking_again_after_the_end_logs_nothing_more(caplog: pytest.LogCaptureFixture):
    iterator = iter(gm.load(range(2), num_epochs=1))
    list(iterator)
    assert next(iterator, None) is None
    assert len(lines(caplog)) == 2


def test_a_run_that_continues_from_a_state_is_logged(caplog: pytest.LogCaptureFixture):
    iterator = iter(gm.load(range(4), num_epochs=1))
    state = iterator.get_state()
    list(iterator)
    iterator.set_state(state)
    assert len(list(iterator)) == 4
    assert [line.partition(" ")[0] for line in lines(caplog)] == ["Started", "Ended"] * 2


def test_skipped_records_are_counted_in_the_last_line(caplog: pytest.LogCaptureFixture):
    loader = gm.load(
        range(5), num_epochs=1, transformations=[lambda x: 1 // x], on_error=gm.SkipErrors(1)
    )
    list(loader)
    assert lines(caplog)[-1].endswith("4 elements, 1 skipped.")


def test_decisions_of_the_tuner_are_logged_at_debug_with_their_reasons(
    caplog: pytest.LogCaptureFixture,
):
    loader = gm.load(range(64), num_epochs=1, transformations=[abs], worker_count=None)
    with with_policy(loader, TRIES_AT_ONCE) as running:
        list(running)

    decisions = [one.getMessage() for one in caplog.records if one.levelno == logging.DEBUG]
    assert decisions[0] == "Running on inline: the first records mostly computed."
    assert any(one.endswith(": a trial, because the consumer waits.") for one in decisions)
    trials = [one for one in decisions if " made " in one]
    assert trials
    for one in trials:
        rate, relation, needed = re.search(
            "made ([0-9]+)/s, (more|not more) than the ([0-9]+)/s that are needed to replace ", one
        ).groups()  # pyright: ignore[reportOptionalMemberAccess]
        assert one.startswith("Keeping" if relation == "more" else "Running on")
        assert (int(rate) >= int(needed)) if relation == "more" else (int(rate) <= int(needed))


def test_a_worker_that_is_replaced_is_logged_at_debug_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    mark = tmp_path / "mark"

    def die_once(number: int) -> int:
        if number == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with gm.load(range(8), num_epochs=1, transformations=[die_once], worker_count=1) as loader:
        assert list(loader) == list(range(8))

    (replaced,) = [record for record in caplog.records if "is replaced" in record.getMessage()]
    assert replaced.levelno == logging.DEBUG
    assert "SIGKILL" in replaced.getMessage()
    assert lines(caplog)[-1].endswith("8 elements, 1 worker replaced.")


def test_control_characters_in_names_are_escaped(caplog: pytest.LogCaptureFixture):
    def step(x: int) -> int:
        return x

    step.__qualname__ = "step\x1b[2J"
    list(gm.load(range(2), num_epochs=1, transformations=[step]))

    assert "\x1b" not in caplog.text
    assert "step\\x1b[2J" in lines(caplog)[0]


@pytest.mark.parametrize("worker_count", [0, 2, None])
def test_a_clean_run_writes_nothing_to_standard_error(worker_count: int | None, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import gristmill as gm

            loader = gm.load(
                range(500), num_epochs=2, shuffle=True, seed=0, batch_size=16,
                transformations=[lambda x: x + 1], worker_count={worker_count},
            )
            for epoch in range(2):
                for batch in loader:
                    pass
            iterator = iter(loader)
            next(iterator)
            stream = gm.MapDataset.range(50).map(str).to_iter_dataset()
            print(len(list(stream)), loader.stats().num_elements)
            """
        )
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)

    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == "50 127\n"
