"""The tuner's matrix: its verdicts, and that each of its workloads runs."""

from pathlib import Path

import pytest

from benchmarks._tuner_workloads import WORKLOADS, open_workload
from benchmarks.tuner_matrix import SETTINGS, Run, Setting, judge, measure

FIXED = [setting.name for setting in SETTINGS if not setting.is_automatic]


def run(speed: float, cpu: float = 1.0) -> Run:
    return Run(elements_per_s=speed, cpu_s_per_element=cpu)


@pytest.mark.parametrize(
    ("automatic", "met"), [(run(95), True), (run(89), False), (run(95, 1.2), False)]
)
def test_an_automatic_setting_is_compared_with_the_fastest_fixed_one(automatic: Run, met: bool):
    runs = {name: run(50) for name in FIXED} | {FIXED[2]: run(100), "default": automatic}

    (verdict,) = judge(runs)

    assert (verdict.setting, verdict.best) == ("default", FIXED[2])
    assert verdict.speed == pytest.approx(automatic.elements_per_s / 100)
    assert verdict.met == met


def test_both_automatic_settings_and_all_fixed_ones_are_measured():
    assert [one.name for one in SETTINGS if one.is_automatic] == ["default", "worker_count=None"]
    assert len(FIXED) == 6


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_yields_elements(name: str, tmp_path: Path):
    loader, consume = open_workload(name, tmp_path, num_threads=0, worker_count=0)

    assert consume(next(iter(loader))) >= 1


def test_a_run_counts_elements_and_cpu_time(tmp_path: Path):
    found = measure("tiny", Setting(name="num_threads=0", num_threads=0), 0.05, tmp_path)

    assert found.elements_per_s > 0
    assert found.cpu_s_per_element >= 0
