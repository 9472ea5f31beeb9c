"""Exports of statistics: to Prometheus, OpenTelemetry, TensorBoard, or a function of yours."""

from gristmill._api.exporters.callback import to_callback
from gristmill._api.exporters.export import Export
from gristmill._api.exporters.opentelemetry import to_opentelemetry
from gristmill._api.exporters.prometheus import to_prometheus
from gristmill._api.exporters.tensorboard import to_tensorboard

__all__ = ["Export", "to_callback", "to_opentelemetry", "to_prometheus", "to_tensorboard"]
