"""Messages between processes, through the key-value store of a distributed job.

The store is in memory, and processes are objects. `test_processes.py` runs real ones.
"""

from typing import Any

import jax
import pytest
from jax._src import distributed

from gristmill._api.feeding import exchange as _exchange
from gristmill._api.feeding.exchange import JobExchange
from gristmill.errors import FeedError


class Client:
    """The methods of JAX's client of the key-value store, over a dict."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def key_value_set(self, key: str, value: Any, allow_overwrite: bool = False) -> None:
        if key in self.values and not allow_overwrite:
            raise RuntimeError(f"ALREADY_EXISTS: {key}")
        self.values[key] = value

    def key_value_try_get(self, key: str) -> Any:
        return self.values[key]

    def blocking_key_value_get(self, key: str, timeout_ms: int) -> Any:
        if key not in self.values:
            raise RuntimeError(f"DEADLINE_EXCEEDED: {key} after {timeout_ms} ms")
        return self.values[key]

    def key_value_dir_get(self, folder: str) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self.values.items() if key.startswith(folder)]

    def key_value_delete(self, folder: str) -> None:
        for key, _ in self.key_value_dir_get(folder):
            del self.values[key]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(distributed.global_state, "client", client)
    monkeypatch.setattr(_exchange, "_num_members", {})
    return client


def exchange_of(process: int, monkeypatch: pytest.MonkeyPatch) -> JobExchange:
    with monkeypatch.context() as patch:
        patch.setattr(jax, "process_index", lambda: process)
        return JobExchange()


@pytest.fixture
def pair(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[JobExchange]:
    """Return the exchanges of two processes, opened in the same folder."""
    pair = [exchange_of(process, monkeypatch) for process in range(2)]
    pair[0].open([0, 1])
    pair[1]._folder = pair[0]._folder  # in a process of its own, `open` returns the same
    return pair


def test_without_a_job_the_error_names_the_call_that_starts_one():
    with pytest.raises(FeedError, match=r"Call `jax.distributed.initialize\(\)` at the start"):
        JobExchange()


def test_each_process_reads_the_latest_post_of_all(pair: list[JobExchange]):
    first, second = pair
    first.post("a")
    second.post("b")
    first.post("c")

    assert first.read_posts() == second.read_posts() == {0: "c", 1: "b"}


def test_the_first_answer_to_a_step_stands(pair: list[JobExchange]):
    first, second = pair

    assert first.wait_for_answer(3, timeout_s=0.01) is None
    assert first.answer(3, "yes")
    assert not second.answer(3, "no")
    assert second.wait_for_answer(3, timeout_s=0.01) == "yes"


def test_a_shared_value_is_the_same_in_all_processes(pair: list[JobExchange]):
    first, second = pair
    first.share({"x": (4, 2)})

    assert second.read_shared() == {"x": (4, 2)}


def test_only_a_bounded_number_of_answers_is_stored(client: Client, pair: list[JobExchange]):
    first, _ = pair
    max_stored = 0
    for step in range(1000):
        first.delete_answers(before=step)
        first.answer(step, "yes")
        max_stored = max(max_stored, len(client.values))

    assert max_stored <= 2 * 64


def test_a_folder_is_deleted_after_all_have_left_it(
    client: Client, pair: list[JobExchange], monkeypatch: pytest.MonkeyPatch
):
    first, second = pair
    first.post("a")
    first.leave()
    exchange_of(0, monkeypatch).open([0, 1])
    assert first.read_posts() == {0: "a"}

    second.leave()
    exchange_of(0, monkeypatch).open([0, 1])
    assert client.values == {}


def test_feeds_of_other_processes_do_not_change_the_folder(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    numbers: dict[str, int] = {}
    for processes in ([0, 1], [0, 2], [0, 1]):
        exchange = exchange_of(0, monkeypatch)
        exchange.open(processes)
        folder, _, number = exchange._folder.rpartition("/")
        assert int(number) == numbers.get(folder, int(number) - 1) + 1
        numbers[folder] = int(number)

    assert len(numbers) == 2
