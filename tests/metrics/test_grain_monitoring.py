"""Metrics with Grain's interface: a program that defines and updates them runs, and reads them."""

from typing import Any

import grain
import pytest

import gristmill


@pytest.mark.parametrize("monitoring", [grain.monitoring, gristmill.monitoring])
def test_a_program_that_defines_metrics_runs_under_both(monitoring: Any):
    fields = [("name", str)]
    counter = monitoring.Counter("/my/counter", monitoring.Metadata("Counts."), fields=fields)
    counter.Increment("a")
    counter.IncrementBy(3, "a")
    metric = monitoring.Metric("/my/metric", int, monitoring.Metadata(description="x"), fields)
    metric.Set(7, "a")
    events = monitoring.EventMetric(
        "/my/events",
        metadata=monitoring.Metadata(description="x", units=monitoring.Units.NANOSECONDS),
        bucketer=monitoring.Bucketer.PowersOf(4.0),
        fields=fields,
    )
    events.Record(2, "a")
    for one in (counter, metric, events):
        one.Get("a")
        one.ClearAll()
    assert monitoring.get_monitoring_root() is None
    monitoring.setup_telemetry()
    monitoring.record_bytes_read_and_latency("x", num_bytes=3, latency_ns=4, num_reads=1)
    monitoring.record_framework_type("x")
    monitoring.record_autotune_node_throughput("x", 1.0)
    monitoring.record_autotune_parameter("x", "y", 1.0)
    monitoring.record_autotune_usl_coeff("x", "y", 1.0)
    monitoring.record_autotune_optimization_latency(1.0)
    monitoring.set_debug_server_ports([1, 2])
    monitoring.set_debug_server_ports([])


def test_values_are_kept_by_field():
    counter = gristmill.monitoring.Counter("/my/counter", fields=[("name", str)])
    counter.Increment("a")
    counter.IncrementBy(3, "a")
    counter.Increment("b")

    assert [counter.Get("a"), counter.Get("b"), counter.Get("c")] == [4, 1, 0]
    counter.ClearAll()
    assert counter.Get("a") == 0


def test_metadata_and_buckets_keep_what_they_were_given():
    metadata = gristmill.monitoring.Metadata("Counts.", units=gristmill.monitoring.Units.BYTES)
    bucketer = gristmill.monitoring.Bucketer.PowersOf(4.0)

    assert metadata.description == "Counts."
    assert vars(metadata)["units"] is gristmill.monitoring.Units.BYTES
    assert (bucketer.type, bucketer.args) == ("PowersOf", (4.0,))
