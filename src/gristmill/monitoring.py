"""The names of Grain's `monitoring` module: metrics that programs for Grain define and update."""

from gristmill._metrics.grain_monitoring import (
    Bucketer,
    Counter,
    EventMetric,
    Metadata,
    Metric,
    Units,
    get_monitoring_root,
    record_autotune_node_throughput,
    record_autotune_optimization_latency,
    record_autotune_parameter,
    record_autotune_usl_coeff,
    record_bytes_read_and_latency,
    record_framework_type,
    set_debug_server_ports,
    setup_telemetry,
)

__all__ = [
    "Bucketer",
    "Counter",
    "EventMetric",
    "Metadata",
    "Metric",
    "Units",
    "get_monitoring_root",
    "record_autotune_node_throughput",
    "record_autotune_optimization_latency",
    "record_autotune_parameter",
    "record_autotune_usl_coeff",
    "record_bytes_read_and_latency",
    "record_framework_type",
    "set_debug_server_ports",
    "setup_telemetry",
]
