"""Options of the process: Grain's names, and the debug mode."""

import copy
import logging
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import grain
import pytest

import gristmill
from gristmill import DataLoader, IndexSampler, MapDataset, MultiprocessingOptions
from gristmill._base.grain.config import Config


@pytest.fixture
def debug_mode() -> Iterator[None]:
    gristmill.config.update("py_debug_mode", True)
    yield
    gristmill.config.update("py_debug_mode", False)


def fails_at_three(element: int) -> int:
    if element == 3:
        raise KeyError("three")
    return element


def in_workers(dataset: Any) -> Any:
    return dataset.mp_prefetch(MultiprocessingOptions(num_workers=2))


PIPELINES: dict[str, Any] = {
    "a dataset in workers": lambda f: in_workers(MapDataset.range(6).map(f).to_iter_dataset()),
    "a loader with workers": lambda f: DataLoader(
        data_source=range(6),
        sampler=IndexSampler(6, num_epochs=1),
        operations=[f],
        worker_count=2,
    ),
    "interleaved datasets in workers": lambda f: gristmill.experimental.InterleaveIterDataset(
        [in_workers(MapDataset.range(6).map(f).to_iter_dataset())], cycle_length=1
    ),
    "threads": lambda f: MapDataset.range(6).map(f),
}
EACH = pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES.keys())


@EACH
@pytest.mark.usefixtures("debug_mode")
def test_in_debug_mode_transforms_run_where_the_element_is_requested(make: Any):
    threads: set[int] = set()

    def note(element: int) -> int:
        threads.add(threading.get_ident())
        return element

    iterator = iter(make(note))
    iterator.start_prefetch()

    assert list(iterator) == [0, 1, 2, 3, 4, 5]
    assert threads == {threading.get_ident()}


@EACH
@pytest.mark.usefixtures("debug_mode")
def test_in_debug_mode_the_traceback_leads_into_the_users_frame(make: Any):
    with pytest.raises(KeyError, match="three") as caught:
        list(make(fails_at_three))

    innermost = traceback.extract_tb(caught.tb)[-1]
    assert (innermost.name, innermost.filename) == ("fails_at_three", __file__)
    *_, (frame, _) = traceback.walk_tb(caught.tb)
    assert frame.f_locals["element"] == 3


@pytest.mark.usefixtures("debug_mode")
def test_debug_mode_does_not_change_states():
    dataset = PIPELINES["a dataset in workers"](str)
    iterator = iter(dataset)
    next(iterator)
    state = iterator.get_state()
    gristmill.config.update("py_debug_mode", False)
    with iter(dataset) as other:
        other.set_state(state)
        assert next(other) == "1"


def test_options_have_grains_names_and_defaults():
    for name in dict(Config()._values):
        assert gristmill.config.get_or_default(name) == grain.config.get_or_default(name)
        assert getattr(gristmill.config, name) == gristmill.config.get_or_default(name)


@pytest.mark.parametrize(
    "action",
    [
        lambda config: config.py_unknown,
        lambda config: config.update("py_unknown", 1),
        lambda config: config.get_or_default("py_unknown"),
    ],
)
def test_an_unknown_option_is_refused_as_in_grain(action: Any):
    for config in (grain.config, gristmill.config):
        with pytest.raises(ValueError, match="Unrecognized config option: py_unknown"):
            action(config)


def test_options_are_set_by_update_only():
    with pytest.raises(ValueError, match=r"Please use update\(\): `config.update\('py_debug_mode'"):
        gristmill.config.py_debug_mode = True  # pyright: ignore[reportAttributeAccessIssue]


def test_an_option_without_effect_reports_that(caplog: pytest.LogCaptureFixture):
    config = Config()
    with caplog.at_level(logging.WARNING, "gristmill"):
        config.update("tf_lookup_batch_size", 7)

    assert "The option `tf_lookup_batch_size` has no effect" in caplog.text
    assert config.tf_lookup_batch_size == 7
    assert repr(config) == "Config(tf_lookup_batch_size=7)"


def test_the_options_can_be_copied():
    assert copy.copy(gristmill.config).py_debug_mode is False
