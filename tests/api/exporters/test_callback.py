"""Exports to a function: when it is called, and what happens if it raises."""

import gc
import logging
import threading
from typing import Any

import pytest

import gristmill as gm
from gristmill import exporters


def loader() -> gm.DataLoader:
    return gm.load(range(8), num_epochs=1, batch_size=4)


def test_it_is_called_now_and_then_and_at_the_end():
    several, seen = threading.Event(), list[gm.Stats]()

    def receive(stats: gm.Stats) -> None:
        seen.append(stats)
        if len(seen) >= 3:
            several.set()

    made = loader()
    with exporters.to_callback(made, receive, every_s=0.01):
        assert several.wait(60)
        list(made)
    assert seen[0].num_elements == 0
    assert seen[-1].num_elements == 2
    count = len(seen)
    assert threading.active_count() == 1 or not [
        thread for thread in threading.enumerate() if thread.name == "gristmill-export"
    ]
    assert len(seen) == count


def test_it_is_called_with_the_last_values_when_the_source_is_gone():
    called, seen = threading.Event(), list[gm.Stats]()

    def receive(stats: gm.Stats) -> None:
        seen.append(stats)
        called.set()

    made = loader()
    list(made)
    exporters.to_callback(made, receive, every_s=0.01)
    assert called.wait(60)
    del made
    gc.collect()

    assert seen[-1].num_elements == 2


def test_closing_twice_does_nothing_more():
    seen: list[gm.Stats] = []
    made = loader()
    export = exporters.to_callback(made, seen.append, every_s=60)
    export.close()
    export.close()

    assert len(seen) == 1


def test_an_error_is_logged_once_and_training_goes_on(caplog: pytest.LogCaptureFixture):
    enough, calls = threading.Event(), list[int]()

    def fail(stats: gm.Stats) -> None:
        calls.append(1)
        if len(calls) >= 3:
            enough.set()
        raise OSError("the network is down")

    made = loader()
    with (
        caplog.at_level(logging.WARNING, "gristmill"),
        exporters.to_callback(made, fail, every_s=0.01),
    ):
        assert len(list(made)) == 2
        assert enough.wait(60)
    assert [record.message for record in caplog.records] == ["An export of statistics failed."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_s": 0}, "`every_s` must be from 0.01 to 86,400 seconds, got 0"),
        ({"function": 3}, "`function` must be a function of `Stats`, got 3"),
        ({"source": range(3)}, "`source` must be a loader, an iterator or a feed, got range"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str):
    given: dict[str, Any] = {"source": loader(), "function": print, **arguments}
    with pytest.raises(gm.errors.PlanError, match=message):
        exporters.to_callback(**given)
