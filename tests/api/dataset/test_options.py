"""Options for a whole pipeline: merged as in Grain; filters that drop too much are reported."""

import logging
import re
from typing import Any

import pytest

from gristmill._api.dataset.options import DatasetOptions, ExecutionTrackingMode
from gristmill._api.dataset.with_options import WithOptionsIterDataset
from gristmill._engine.stages import filter_limits as _watch
from gristmill.errors import FilterError, PlanError, PlanTypeError
from tests.compat.both_sides import SIDES, ours, take

NAMES = (
    "filter_warn_threshold_ratio",
    "filter_raise_threshold_ratio",
    "execution_tracking_mode",
    "min_shm_size",
)


@pytest.fixture(autouse=True)
def _no_warning_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_watch, "_warned_at", {})


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"filter_warn_threshold_ratio": 0.5}, {}),
    ({"filter_warn_threshold_ratio": 0.9}, {"filter_warn_threshold_ratio": 0.5}),
    ({}, {"filter_warn_threshold_ratio": None, "min_shm_size": 7}),
    ({"min_shm_size": 0}, {"min_shm_size": 7, "filter_raise_threshold_ratio": 0.1}),
]


@pytest.mark.parametrize(("first", "second"), CASES)
def test_options_are_merged_as_grains(first: Any, second: Any):
    merged = []
    for api in SIDES:
        options = api.experimental.DatasetOptions
        one = options(**first).merge(options(**second)).merge(None)
        merged.append([str(getattr(one, name)) for name in NAMES])
    assert merged[1] == merged[0]


def test_the_modes_of_tracking_are_grains():
    theirs = SIDES[0].experimental.ExecutionTrackingMode
    assert [(m.name, m.value) for m in ExecutionTrackingMode] == [(m.name, m.value) for m in theirs]


def test_options_are_checked():
    with pytest.raises(PlanError, match="between 0 and 1, got 2"):
        DatasetOptions(filter_warn_threshold_ratio=2)
    with pytest.raises(PlanTypeError, match="must be a number or None"):
        DatasetOptions(filter_raise_threshold_ratio="often")  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanTypeError, match="`options` must be DatasetOptions"):
        WithOptionsIterDataset(ours.MapDataset.range(3).to_iter_dataset(), None)  # pyright: ignore[reportArgumentType]


def rarely(every: int) -> Any:
    return lambda element: element % every == 0


def in_map(api: Any, every: int) -> Any:
    return api.MapDataset.range(10_000).filter(rarely(every)).to_iter_dataset()


def in_stream(api: Any, every: int) -> Any:
    return api.MapDataset.range(10_000).to_iter_dataset().filter(rarely(every))


def after_a_state(api: Any, every: int) -> Any:
    ds = api.MapDataset.range(10_000).to_iter_dataset().map_with_index(lambda _, x: x)
    return ds.filter(rarely(every))


PLACES = pytest.mark.parametrize("place", [in_map, in_stream, after_a_state])


def with_options(api: Any, ds: Any, **options: Any) -> Any:
    experimental = api.experimental
    return experimental.WithOptionsIterDataset(ds, experimental.DatasetOptions(**options))


@PLACES
@pytest.mark.parametrize(("every", "ratio"), [(2, 0.45), (100, 0.95), (10, 0.95), (2, 0.6)])
def test_it_raises_where_grain_raises(place: Any, every: int, ratio: float):
    theirs, mine = (
        take(iter(with_options(api, place(api, every), filter_raise_threshold_ratio=ratio)))
        for api in SIDES
    )
    assert mine == theirs
    assert (mine[-1] == "refused") == (1 - 1 / every >= ratio)


def rare_batches(api: Any, _every: int) -> Any:
    ds = api.MapDataset.range(10_000).to_iter_dataset().batch(3)
    return ds.filter(lambda batch: batch[0] % 2 == 0 or batch[0] < 4500)


def rare_pieces(api: Any, every: int) -> Any:
    ds = api.experimental.FlatMapIterDataset(
        api.MapDataset.range(2000).filter(lambda x: x % 7 != 3).to_iter_dataset(), Pieces()
    )
    return ds.filter(rarely(every)).batch(2)


class Pieces(ours.experimental.FlatMapTransform):
    max_fan_out = 5

    def flat_map(self, element: int) -> list[int]:
        return [4 * element + piece for piece in range(element % 5)]


@pytest.mark.parametrize("place", [in_map, in_stream, after_a_state, rare_batches, rare_pieces])
@pytest.mark.parametrize("every", [2, 5])
def test_where_it_raises_does_not_depend_on_who_runs_it(place: Any, every: int):
    ds = with_options(ours, place(ours, every), filter_raise_threshold_ratio=0.6)
    ways = [
        with_options(ours, ds, min_shm_size=0),
        ds.mp_prefetch(ours.MultiprocessingOptions(num_workers=2)),
        ds.mp_prefetch(ours.MultiprocessingOptions(num_workers=1, per_worker_buffer_size=3)),
        ours.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2),
    ]
    plain, *others = ([str(element) for element in take(iter(way))] for way in ways)
    assert all(other == plain for other in others)
    assert (plain[-1] == "refused") == (every == 5 and place is not rare_batches)


def test_the_error_names_the_filter_and_comes_again():
    ds = with_options(ours, in_stream(ours, 1000), filter_raise_threshold_ratio=0.9)
    iterator = iter(ds)
    with pytest.raises(
        FilterError, match=r"Filter .* skipped 99\.\d+ % of the last seen \d+ elements"
    ):
        list(iterator)
    with pytest.raises(ValueError, match=r"`filter_raise_threshold_ratio` is 0\.9"):
        list(iterator)


@PLACES
def test_it_warns_once_a_minute(
    place: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(_watch.time, "monotonic", lambda: now)
    with caplog.at_level(logging.WARNING, "gristmill"):
        for seconds in (0, 59, 2):
            now += seconds
            assert len(list(place(ours, 100))) == 100
    assert len(caplog.records) == 2
    assert re.search(r"skipped 9\d\.\d\d % of the last seen \d+", caplog.records[0].getMessage())


@PLACES
def test_it_does_not_warn_of_little_or_when_asked_not_to(
    place: Any, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "gristmill"):
        list(place(ours, 5))
        list(with_options(ours, place(ours, 100), filter_warn_threshold_ratio=None))
        list(with_options(ours, place(ours, 100), filter_warn_threshold_ratio=0.999))
    assert caplog.records == []


def test_options_hold_for_steps_before_and_after_and_the_last_come_first():
    def pipeline(first: float, last: float) -> Any:
        ds = with_options(
            ours,
            ours.MapDataset.range(5000).to_iter_dataset(),
            filter_raise_threshold_ratio=first,
        )
        ds = ds.filter(rarely(10)).map_with_index(lambda _, x: x)
        return with_options(ours, ds, filter_raise_threshold_ratio=last).map(lambda x: x)

    assert take(iter(pipeline(0.5, 0.95)))[-1] == 4990
    assert take(iter(pipeline(0.95, 0.5)))[-1] == "refused"


def test_two_filters_are_watched_each_for_itself():
    ds = ours.MapDataset.range(10_000).to_iter_dataset()
    ds = ds.filter(rarely(3)).filter(rarely(4))
    assert len(list(with_options(ours, ds, filter_raise_threshold_ratio=0.8))) == 834


def test_options_change_no_element_and_no_state():
    plain = ours.MapDataset.range(20).to_iter_dataset().batch(3)
    optional = with_options(ours, plain, min_shm_size=3)
    one, other = iter(plain), iter(optional)
    assert next(one).tolist() == next(other).tolist()
    assert one.get_state() == other.get_state()
