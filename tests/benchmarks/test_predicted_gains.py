"""Predicted gains: how advice is applied, judged, stored and published."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks._gain_cases import CASES, Setting
from benchmarks.predicted_gains import Gain, changed, document, since
from benchmarks.publish import gains_section, page, read_documents
from gristmill import Stats, StepStats
from gristmill._metrics.explanation import Change

GAIN = Gain(
    name="waits",
    kind="waiting",
    is_named=True,
    action="With `worker_count=2`",
    predicted=2.0,
    measured=1.9,
)
HOST: dict[str, Any] = {
    "date": "2026-01-01 00:00 UTC", "python": "3.11", "platform": "Linux", "cpus": 2,
    "load_at_start": 0.1, "processor": "CPU", "memory_gb": 8, "commit": "abc1234",
}  # fmt: skip


@pytest.mark.parametrize(
    ("action", "setting"),
    [
        ("With `worker_count=3`", Setting(worker_count=3)),
        ("With `read_options=ReadOptions(num_threads=8)`", Setting(num_threads=8)),
        ("With `to_iter_dataset(ReadOptions(num_threads=8))`", Setting(num_threads=8)),
        (
            "With `mp_prefetch(MultiprocessingOptions(num_workers=2))`",
            Setting(worker_count=2),
        ),
        ("With half as many bytes per element", Setting(size=0.5)),
    ],
)
def test_advice_is_applied(action: str, setting: Setting):
    assert changed(Setting(), Change(action=action, speedup=2.0, limit="")) == setting


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (GAIN, "met"),
        (replace(GAIN, measured=1.5), "NOT MET"),
        (replace(GAIN, measured=4.0), "NOT MET"),
        (replace(GAIN, is_named=False), "NOT MET (bottleneck)"),
    ],
)
def test_a_prediction_may_be_a_quarter_off(gain: Gain, verdict: str):
    assert gain.verdict == verdict


def test_statistics_are_those_between_two_moments():
    before = Stats(num_elements=3, output_bytes=30, steps=(StepStats(name="Map f", elapsed_s=1.0),))
    after = Stats(
        num_elements=10, output_bytes=100, steps=(StepStats(name="Map f", elapsed_s=5.0),)
    )

    between = since(before, after)

    assert (between.num_elements, between.output_bytes) == (7, 70)
    assert between.steps[0].elapsed_s == 4.0


def test_results_are_published(tmp_path: Path):
    gains = [GAIN, replace(GAIN, name="copies", measured=1.0)]
    text = json.dumps(document(gains, host=HOST, seconds=3.0))
    (tmp_path / "gains.json").write_text(text)

    shown = page({}, {}, read_documents(tmp_path))

    assert "| waits | waiting | With `worker_count=2` | 2.00x | 1.90x | met |" in shown
    assert "- 1 of 2 met; NOT MET: copies." in shown
    assert "2026-01-01 00:00 UTC; 3 s for each setting; load at the start 0.1" in shown
    assert gains_section([]) == []


def test_there_is_a_case_of_each_kind():
    kinds = {kind for case in CASES for kind in case.kinds}
    assert {"waiting", "computing", "interpreter", "transfer", "device"} <= kinds
    assert len({case.name for case in CASES}) == len(CASES)
