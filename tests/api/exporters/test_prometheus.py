"""What Prometheus reads: parsed by its own client library."""

import gc
import sys
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import gristmill as gm
from gristmill import exporters


def loader() -> gm.DataLoader:
    return gm.load(np.arange(24, dtype=np.int32), num_epochs=1, batch_size=4, transformations=[abs])


def samples_of(registry: CollectorRegistry) -> dict[tuple[str, frozenset[Any]], float]:
    text = generate_latest(registry).decode()
    lines = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(lines) == len(set(lines))  # a metric is described once
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples)
    return found


def test_counters_are_those_of_the_statistics():
    registry, made = CollectorRegistry(), loader()
    with exporters.to_prometheus(made, registry=registry):
        assert len(list(made)) == 6
        stats, samples = made.stats(), samples_of(registry)

    train = frozenset({("loader", "train")})
    assert samples["gristmill_elements_total", train] == 6
    assert samples["gristmill_waited_seconds_total", train] == stats.waited_s
    steps = {dict(labels).get("step") for name, labels in samples if "step_cpu" in name}
    assert steps == {step.name for step in stats.steps}


def test_the_metrics_of_grain_have_its_names():
    registry, made = CollectorRegistry(), loader()
    exporters.to_prometheus(made, registry=registry)
    list(made)
    samples = {name: value for (name, _), value in samples_of(registry).items()}

    # In Grain: `_PROMETHEUS_ALLOWED_METRICS`, with slashes replaced.
    assert samples["grain_python_dataset_next_duration_ns_count"] == 6
    assert samples["grain_python_data_loader_iterator_get_next_count"] == 6
    assert samples["grain_python_dataset_prefetch_buffer_ready_count_count"] > 0
    assert samples["grain_python_dataset_source_read_time_ns_count"] == 24
    assert samples["grain_python_data_sources_bytes_read_total"] == 24 * 4
    assert samples["grain_python_dataset_next_duration_ns_sum"] == pytest.approx(
        1e9 * made.stats().waited_s
    )


def test_grain_exports_these_five_metrics():
    grain = pytest.importorskip("grain._src.core.prometheus_monitoring", reason="Grain is missing")
    names = {
        name.strip("/").replace("/", "_")
        for name in grain._PROMETHEUS_ALLOWED_METRICS  # the oracle has no public name for it
    }
    registry, made = CollectorRegistry(), loader()
    exporters.to_prometheus(made, registry=registry)
    list(made)
    families = {family.name for family in registry.collect()}

    assert names <= families


def test_the_self_time_of_each_step_has_the_name_that_grain_gives_it():
    name = "grain_python_dataset_self_time_ns"
    registry, made = CollectorRegistry(), loader()
    exporters.to_prometheus(made, registry=registry)
    list(made)
    samples, stats = samples_of(registry), made.stats()

    for step in stats.steps:
        labels = frozenset({("loader", "train"), ("name", step.name)})
        assert samples[f"{name}_count", labels] == 6
        assert samples[f"{name}_sum", labels] == pytest.approx(1e9 * step.elapsed_s)


def test_buckets_grow_to_the_number_of_elements():
    registry, made = CollectorRegistry(), loader()
    exporters.to_prometheus(made, registry=registry)
    list(made)
    buckets = sorted(
        (float(dict(labels)["le"]), value)
        for (name, labels), value in samples_of(registry).items()
        if name == "grain_python_dataset_next_duration_ns_bucket"
    )

    counts = [value for _, value in buckets]
    assert counts == sorted(counts)
    assert (buckets[-1][0], counts[-1]) == (float("inf"), 6)


def test_several_sources_have_labels_and_share_metrics():
    registry, first, second = CollectorRegistry(), loader(), loader()
    with (
        exporters.to_prometheus(first, registry=registry, name="train"),
        exporters.to_prometheus(second, registry=registry, name="eval"),
    ):
        list(first)
        samples = samples_of(registry)

    assert samples["gristmill_elements_total", frozenset({("loader", "train")})] == 6
    assert samples["gristmill_elements_total", frozenset({("loader", "eval")})] == 0
    assert samples_of(registry) == {}


def test_a_name_is_used_once():
    registry, made = CollectorRegistry(), loader()
    with (
        exporters.to_prometheus(made, registry=registry),
        pytest.raises(gm.errors.PlanError, match="already has a source with the name 'train'"),
    ):
        exporters.to_prometheus(made, registry=registry)
    exporters.to_prometheus(made, registry=registry).close()


def test_an_export_ends_with_its_source():
    registry, made = CollectorRegistry(), loader()
    exporters.to_prometheus(made, registry=registry)
    del made
    gc.collect()

    assert samples_of(registry) == {}


def test_feeds_and_dataset_iterators_are_exported():
    registry = CollectorRegistry()
    with gm.feed(loader()) as batches, iter(gm.MapDataset.range(6).batch(2)) as iterator:
        exporters.to_prometheus(batches, registry=registry, name="feed")
        exporters.to_prometheus(iterator, registry=registry, name="dataset")
        list(batches)
        list(iterator)
        samples = samples_of(registry)

    assert samples["gristmill_elements_total", frozenset({("loader", "feed")})] == 6
    assert samples["gristmill_elements_total", frozenset({("loader", "dataset")})] == 3


def test_a_dataset_is_refused_with_a_remedy():
    source: Any = gm.MapDataset.range(4)
    with pytest.raises(gm.errors.PlanTypeError, match=r"that is `iter\(dataset\)`"):
        exporters.to_prometheus(source, registry=CollectorRegistry())


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(gm.errors.MissingExtraError, match=r"gristmill\[prometheus\]"):
        exporters.to_prometheus(loader())
