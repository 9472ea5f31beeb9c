"""What OpenTelemetry's SDK collects."""

import sys
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import gristmill as gm
from gristmill import exporters


def points_of(reader: InMemoryMetricReader) -> dict[tuple[str, frozenset[Any]], float]:
    data: Any = reader.get_metrics_data()
    return {
        (metric.name, frozenset(point.attributes.items())): point.value
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_metrics_are_those_of_the_statistics():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    loader = gm.load(np.arange(12), num_epochs=1, batch_size=4, transformations=[abs])
    export = exporters.to_opentelemetry(loader, meter=provider.get_meter("test"), name="train")
    list(loader)
    points, stats = points_of(reader), loader.stats()

    train = ("loader", "train")
    assert points["gristmill.elements", frozenset({train})] == 3
    assert points["gristmill.waited", frozenset({train})] == stats.waited_s
    for step in stats.steps:
        labels = frozenset({train, ("step", step.name)})
        assert points["gristmill.step", labels] == step.elapsed_s

    export.close()
    assert points_of(reader) == {}
    provider.shutdown()


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(gm.errors.MissingExtraError, match=r"gristmill\[opentelemetry\]"):
        exporters.to_opentelemetry(gm.load(range(4), num_epochs=1))
