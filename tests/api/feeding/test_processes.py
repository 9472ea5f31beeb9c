"""Several real JAX processes on this machine feed one training run."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("programs.py")
TIME_LIMIT_S = 110

Results = list[dict[str, Any]]
"""The result of each scenario, for each process."""


def run(folder: Path, task: str, count: int, num_devices: int) -> Results:
    """Run the program as several JAX processes. One that hangs is a failure."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
        "JAX_PLATFORMS": "cpu",
    }
    if task == "two":  # as some launchers do; workers must not take it for theirs
        environment |= {
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(count),
        }
    processes: list[subprocess.Popen[str]] = []
    outputs = [folder / f"{task}-{index}.txt" for index in range(count)]
    try:
        for index, output in enumerate(outputs):
            if task == "two":
                environment["JAX_PROCESS_ID"] = str(index)
            arguments = [str(index), str(count), str(port), str(folder), task]
            with output.open("w") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(PROGRAM), *arguments],
                        env=environment,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
        deadline = time.monotonic() + TIME_LIMIT_S
        for process in processes:
            process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            process.kill()
            process.wait()
    logs = "\n".join(f"{output.name}:\n{output.read_text()}" for output in outputs)
    assert [process.returncode for process in processes] == [0] * count, logs
    return [json.loads((folder / f"{task}-{index}.json").read_text()) for index in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def two(folder: Path) -> Results:
    return run(folder, "two", 2, num_devices=2)


@pytest.fixture(scope="module")
def four(folder: Path) -> Results:
    return run(folder, "four", 4, num_devices=1)


@pytest.fixture(scope="module", params=["two", "four"])
def results(request: pytest.FixtureRequest) -> Results:
    return request.getfixturevalue(request.param)


def records_of(walks: Results) -> list[int]:
    return sorted(record for walk in walks for record in walk["records"])


def own_records(counts: list[int]) -> list[int]:
    return [100 * (me + 1) + number for me, count in enumerate(counts) for number in range(count)]


def assert_all_saw_the_same_steps(walks: Results) -> None:
    for walk in walks:
        assert walk["totals"] == walks[0]["totals"]
        assert walk["shapes"] == walks[0]["shapes"]


def assert_the_epoch_was_seen(walks: Results, *, copies: int = 1) -> None:
    assert_all_saw_the_same_steps(walks)
    assert [walk["error"] for walk in walks] == [None] * len(walks)
    assert records_of(walks) == sorted([*range(48)] * copies)
    assert sum(walks[0]["totals"]) == sum(range(48))


def test_the_loaders_shards_are_the_epoch_exactly_once(results: Results):
    walks = [one["shards_in_loader"] for one in results]

    assert_the_epoch_was_seen(walks)
    assert walks[0]["shapes"][0] == [4 * len(results)]


def test_the_samplers_shards_are_the_epoch_exactly_once(two: Results):
    assert_the_epoch_was_seen([one["shards_in_sampler"] for one in two])


def test_dropping_stops_at_the_same_step_in_all_processes(results: Results):
    counts = [13, 9, 0, 5][: len(results)]
    walks = [one["unequal"]["drop"] for one in results]

    assert_all_saw_the_same_steps(walks)
    num_steps = min(counts) // 2
    assert len(walks[0]["totals"]) == num_steps
    assert records_of(walks) == own_records([2 * num_steps] * len(results))


def test_padding_continues_until_all_processes_have_ended(results: Results):
    counts = [13, 9, 0, 5][: len(results)]
    walks = [one["unequal"]["pad"] for one in results]

    assert_all_saw_the_same_steps(walks)
    assert walks[0]["shapes"] == [[2 * len(results)]] * 7
    assert records_of(walks) == own_records(counts)
    assert sum(walks[0]["totals"]) == sum(own_records(counts))


def test_a_process_without_any_data_feeds_padding(two: Results):
    walks = [one["one_has_none"] for one in two]

    assert [walk["drop"]["totals"] for walk in walks] == [[], []]
    padded = [walk["pad"] for walk in walks]
    assert_all_saw_the_same_steps(padded)
    assert [walk["records"] for walk in padded] == [[], [200, 201, 202, 203, 204]]


def test_the_number_of_batches_need_not_be_known(two: Results):
    walks = [one["unknown_lengths"] for one in two]

    dropped, padded = ([walk[remainder] for walk in walks] for remainder in ("drop", "pad"))
    assert_all_saw_the_same_steps(dropped)
    assert_all_saw_the_same_steps(padded)
    evens, thirds = list(range(100, 140, 2)), list(range(200, 240, 3))
    assert [walk["records"] for walk in dropped] == [evens[:14], thirds[:14]]
    assert [walk["records"] for walk in padded] == [evens, thirds]


def test_smaller_batches_are_kept_if_all_processes_have_the_same_number_of_rows(two: Results):
    walks = [one["kept_and_equal"] for one in two]

    assert_all_saw_the_same_steps(walks)
    assert walks[0]["shapes"] == [[8], [4]]
    assert records_of(walks) == own_records([6, 6])


def test_keeping_batches_of_different_sizes_is_an_error_in_all_processes(results: Results):
    walks = [one["kept_and_unequal"] for one in results]

    assert_all_saw_the_same_steps(walks)
    assert len(walks[0]["totals"]) == 4
    for walk in walks:
        assert "In step 4 the processes have batches of different sizes" in walk["error"]
        assert "process 0: 2 rows, process 1: 0 rows" in walk["error"]


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_in_one_process_is_raised_in_the_others(results: Results, bad: int):
    walks = [one["one_raises"][bad] for one in results]

    assert_all_saw_the_same_steps(walks)
    errors = [walk["error"] for walk in walks]
    assert errors.pop(bad) == "ZeroDivisionError: seven is not allowed"
    expected = f"FeedError: Process {bad} has no step 3: ZeroDivisionError: seven is not allowed"
    assert errors == [expected] * (len(results) - 1)


def test_an_integer_that_does_not_fit_in_one_process_is_an_error_in_all_at_that_step(two: Results):
    first, second = (one["one_does_not_fit"] for one in two)

    assert first["taken"] == second["taken"] == 3
    assert first["error"].startswith(
        "Process 1 has no step 3: FeedError: batch contains 1099511627776"
    )
    assert second["error"].startswith("batch contains 1099511627776, which")


@pytest.mark.parametrize("leaving", [0, 1])
def test_processes_that_wait_for_one_that_has_closed_get_an_error(results: Results, leaving: int):
    walks = [one["one_closes"][leaving] for one in results]

    assert walks.pop(leaving) == {"taken": 3, "error": None}
    for walk in walks:
        assert 3 <= walk["taken"] <= 3 + 2 + 1  # prefetched ones, and the one in progress
        assert walk == walks[0]
        assert f"Process {leaving} has no step {walk['taken']}: its iterator" in walk["error"]


def test_other_hosts_are_named_where_they_wait_for_a_slow_one(results: Results):
    slow, *others = [one["one_is_slow"] for one in results]

    assert slow == ["waiting", "Map read"]
    assert others == [["other hosts", ""]] * len(others)


@pytest.mark.parametrize("scenario", ["one_raises", "one_closes"])
def test_the_processes_can_feed_again_after_an_error(results: Results, scenario: str):
    walks = [one[scenario][2] for one in results]

    assert_all_saw_the_same_steps(walks)
    assert records_of(walks) == own_records([4] * len(results))


def test_all_processes_may_stop_early_at_the_same_step(two: Results):
    for number, limit in enumerate((3, 1)):
        walks = [one["all_stop_early"][number] for one in two]
        assert_all_saw_the_same_steps(walks)
        assert [walk["error"] for walk in walks] == [None, None]
        assert records_of(walks) == own_records([2 * limit] * 2)


def test_two_feeds_can_be_interleaved_and_restored(results: Results):
    results = [one["interleaved"] for one in results]
    parts = {part: [one[part] for one in results] for part in results[0]}

    for walks in parts.values():
        assert_all_saw_the_same_steps(walks)
        assert [walk["error"] for walk in walks] == [None] * len(results)
    assert parts["again"] == parts["next"]
    trained = records_of(parts["train"] + parts["again"] + parts["rest"])
    assert trained == own_records([40] * len(results))
    evaluated = records_of(parts["evaluation"] + parts["evaluation_rest"])
    assert evaluated == own_records([9, 5, 6, 8][: len(results)])


def test_a_feed_to_local_devices_needs_no_agreement(two: Results):
    assert [one["only_here"]["count"] for one in two] == [1, 3]


def test_rows_may_be_replicated_within_a_process(two: Results):
    assert_the_epoch_was_seen([one["model_axis_within"] for one in two])


def test_rows_may_be_replicated_over_processes(two: Results):
    assert_the_epoch_was_seen([one["model_axis_across"] for one in two], copies=2)


def test_two_processes_may_have_the_same_rows(four: Results):
    walks = [one["replicas_in_pairs"] for one in four]

    assert_the_epoch_was_seen(walks, copies=2)
    assert walks[0]["records"] == walks[1]["records"]
    assert walks[2]["records"] == walks[3]["records"]


def test_some_processes_may_have_more_feeds_among_themselves(four: Results):
    for pair, counts in (((0, 1), [5, 3]), ((2, 3), [0, 0, 2, 7])):
        walks = [four[process]["pairs_then_all"]["pair"] for process in pair]
        for once in zip(*walks, strict=True):
            assert_all_saw_the_same_steps(list(once))
            assert records_of(list(once)) == own_records(counts)
    together = [one["pairs_then_all"]["all"] for one in four]
    assert_all_saw_the_same_steps(together)
    assert records_of(together) == own_records([4] * 4)


def test_each_process_resumes_from_its_own_state(two: Results):
    results = [one["saved_and_restored"] for one in two]

    for one in results:
        assert one["restored"] == one["rest"]
    assert records_of([one[part] for one in results for part in ("before", "rest")]) == [*range(48)]


def test_one_process_resumes_from_the_states_of_two(two: Results, folder: Path):
    before = [one["saved_and_restored"]["before"] for one in two]

    (after,) = run(folder, "restore", 1, num_devices=2)

    assert records_of([*before, after["restored"]]) == [*range(48)]


def test_a_worker_that_uses_jax_sees_only_the_cpu_and_no_job(two: Results):
    for one in two:
        seen = one["in_a_worker"]
        assert len(seen) == 24
        assert {tuple(rest) for _, *rest in seen} == {(1, 0, True)}
    assert sorted(row[0] for one in two for row in one["in_a_worker"]) == [*range(48)]


def test_the_store_does_not_fill_up(results: Results):
    one_feed = 64 + 1 + 2 * len(results)  # answers, at limit a folder of them; shared; posts; left

    for one in results:
        assert one["many_steps"]["keys"] <= 2 * one_feed
        assert one["many_steps"]["keys_after"] <= one_feed


def test_a_program_may_end_while_it_feeds(results: Results):
    walks = [one["never_closed"] for one in results]  # and all have ended well: see `run`

    assert_all_saw_the_same_steps(walks)
    assert records_of(walks) == own_records([4] * len(results))


def test_each_process_loads_the_rows_that_its_devices_hold(results: Results):
    walks = [one["by_mesh"] for one in results]

    assert_the_epoch_was_seen([one["data"] for one in walks])
    assert_the_epoch_was_seen([one["across"] for one in walks], copies=len(results))
    half = [one["half"] for one in walks]
    assert_the_epoch_was_seen(half, copies=len(results) // 2)
    for process, walk in enumerate(half):
        assert walk["records"] == half[process - process % (len(results) // 2)]["records"]


def test_all_processes_take_the_same_bucket_at_each_step(results: Results):
    walks = [one["buckets"] for one in results]

    assert_all_saw_the_same_steps(walks)
    assert len({tuple(shape) for shape in walks[0]["shapes"]}) == 3
    assert all(rows * length <= 80 * len(results) for rows, length in walks[0]["shapes"])
    assert records_of(walks) == [*range(200)]
    lengths = np.random.default_rng(0).integers(1, 31, 200)
    assert sum(walks[0]["totals"]) == sum((np.arange(200) + 1) * lengths)


def test_processes_with_different_buckets_get_an_error_instead_of_hanging(results: Results):
    for one in results:
        walk = one["own_buckets"]
        assert walk["totals"] == []
        assert "In step 0 the processes have rows of different shapes (process 0: " in walk["error"]
        assert "(10,)" in walk["error"]
        assert "(5,)" in walk["error"]


def test_some_processes_may_load_no_data(results: Results):
    walks = [one["by_mesh"]["subset"] for one in results]

    assert_all_saw_the_same_steps(walks)
    assert [walk["error"] for walk in walks] == [None] * len(results)
    assert sorted(walks[0]["records"]) == [*range(48)]
    assert [walk["records"] for walk in walks[1:]] == [[]] * (len(results) - 1)
    assert [one["by_mesh"]["endless"] for one in results] == [True] + [False] * (len(results) - 1)


def test_loaders_that_are_not_sharded_warn_once(results: Results):
    for one in results:
        sharded, replicated, first, second = one["unsharded"]
        assert sharded == replicated == second == []
        (message,) = first
        assert "every record would be fed once for each of" in message
