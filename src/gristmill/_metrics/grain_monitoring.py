"""Metrics with the interface of Grain's, which programs written for Grain define and update.

Values are kept in the process, by the values of the fields, where `Get` returns them. gristmill
itself does not report to them: `iterator.stats()` returns what a pipeline has done.
"""

import enum
import threading
from collections import defaultdict
from typing import Any, TypeAlias, final

Number: TypeAlias = float | int


@final
@enum.unique
class Units(enum.Enum):
    """Units of a metric.

    >>> Metadata("Time to decode.", units=Units.SECONDS).units.name
    'SECONDS'
    """

    SECONDS = enum.auto()
    MILLISECONDS = enum.auto()
    MICROSECONDS = enum.auto()
    NANOSECONDS = enum.auto()
    BITS = enum.auto()
    BYTES = enum.auto()


@final
class Metadata:
    """What a metric means: a description, and any other attributes.

    >>> Metadata("Records read.", owner="me")
    Metadata(description='Records read.', owner='me')

    Args:
        description: What the metric measures.
        **kwargs: Further attributes, such as `units`.
    """

    def __init__(self, description: str = "", **kwargs: Any) -> None:
        self.description = description
        vars(self).update(kwargs)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"Metadata({shown})"


@final
class Bucketer:
    """How the values of an `EventMetric` are grouped. It is stored and not used.

    >>> Bucketer.PowersOf(2.0)
    Bucketer(2.0, bucketer_type='PowersOf')

    Args:
        *args: Parameters of the kind of buckets.
        bucketer_type: The kind.
        **kwargs: Further parameters.
    """

    def __init__(self, *args: Any, bucketer_type: str | None = None, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.type = bucketer_type

    def __repr__(self) -> str:
        return f"Bucketer({', '.join(map(repr, self.args))}, bucketer_type={self.type!r})"

    @staticmethod
    def PowersOf(base: float) -> "Bucketer":  # noqa: N802 - as in Grain
        """Return buckets that grow by a factor.

        Args:
            base: The factor.
        """
        return Bucketer(base, bucketer_type="PowersOf")


class _Values:
    """Numbers by the values of the fields of a metric."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._values: defaultdict[tuple[Any, ...], Any] = defaultdict(int)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def Get(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - as in Grain
        """Return the value for the given values of the fields.

        Args:
            *args: The values of the fields, in order.
            **kwargs: The values of the fields by name.
        """
        with self._lock:
            return self._values.get(_key(args, kwargs), 0)

    def ClearAll(self) -> None:  # noqa: N802 - as in Grain
        """Remove all values."""
        with self._lock:
            self._values.clear()

    def _add(self, value: Number, key: tuple[Any, ...]) -> None:
        with self._lock:
            self._values[key] += value


@final
class Counter(_Values):
    """A number that grows.

    >>> counter = Counter("/my/records", Metadata("Records read."), fields=[("source", str)])
    >>> counter.IncrementBy(3, "train")
    >>> counter.Get("train")
    3

    Args:
        name: The name of the metric.
        metadata: What it means.
        *args: The names and types of its fields.
        **kwargs: The same, by name.
    """

    def __init__(self, name: str, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(name)
        self.metadata = metadata

    def Increment(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - as in Grain
        """Add 1.

        Args:
            *args: The values of the fields, in order.
            **kwargs: The values of the fields by name.
        """
        self._add(1, _key(args, kwargs))

    def IncrementBy(self, value: Number, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        """Add a number.

        Args:
            value: The number.
            *args: The values of the fields, in order.
            **kwargs: The values of the fields by name.
        """
        self._add(value, _key(args, kwargs))


@final
class Metric(_Values):
    """A value that changes.

    >>> size = Metric("/my/buffer_size", int)
    >>> size.Set(7)
    >>> size.Get()
    7

    Args:
        name: The name of the metric.
        value_type: The type of its values.
        metadata: What it means.
        *args: The names and types of its fields.
        **kwargs: The same, by name.
    """

    def __init__(
        self,
        name: str,
        value_type: Any = float,
        metadata: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(name)
        self.value_type = value_type
        self.metadata = metadata

    def Set(self, value: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - as in Grain
        """Set the value.

        Args:
            value: The new value.
            *args: The values of the fields, in order.
            **kwargs: The values of the fields by name.
        """
        with self._lock:
            self._values[_key(args, kwargs)] = value


@final
class EventMetric(_Values):
    """A distribution of numbers, of which `Get` returns the sum.

    >>> latency = EventMetric("/my/latency", bucketer=Bucketer.PowersOf(2.0))
    >>> latency.Record(1.5)
    >>> latency.Record(2.5)
    >>> latency.Get()
    4.0

    Args:
        name: The name of the metric.
        metadata: What it means.
        *args: The names and types of its fields.
        **kwargs: The same by name, and the `bucketer` that groups values.
    """

    def __init__(self, name: str, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(name)
        self.metadata = metadata

    def Record(self, value: Number, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - as in Grain
        """Add a number to the distribution.

        Args:
            value: The number.
            *args: The values of the fields, in order.
            **kwargs: The values of the fields by name.
        """
        self._add(value, _key(args, kwargs))


def get_monitoring_root() -> None:
    """Return `None`, as Grain does: metrics have no common root.

    >>> get_monitoring_root() is None
    True
    """


def setup_telemetry() -> None:
    """Do nothing. In Grain it starts a server for Prometheus, if the environment asks for one.

    >>> setup_telemetry()
    """


_bytes_read = Counter("/grain/python/data_sources/bytes_read")
_source_read_time_ns = EventMetric("/grain/python/dataset/source_read_time_ns")
_framework_type = Counter("/grain/framework_type")
_debug_server_ports = Metric("/grain/debug_server_ports", str)
_node_throughput = Metric("/grain/autotune/node_throughput", float)
_parameters = Metric("/grain/autotune/parameters", float)
_usl_coefficients = Metric("/grain/autotune/usl_coeffs", float)
_optimization_latency = EventMetric("/grain/autotune/optimization_latency")


def record_bytes_read_and_latency(
    source: str, *, num_bytes: int, latency_ns: int, num_reads: int
) -> None:
    """Record what reading from a source took.

    >>> record_bytes_read_and_latency("train", num_bytes=4096, latency_ns=1500, num_reads=1)

    Args:
        source: The name of the source.
        num_bytes: The number of bytes that were read.
        latency_ns: How long it took.
        num_reads: The number of reads.
    """
    del num_reads
    _bytes_read.IncrementBy(num_bytes, source)
    _source_read_time_ns.Record(latency_ns, source)


def record_framework_type(framework_type: str) -> None:
    """Count a use of gristmill.

    >>> record_framework_type("maxtext")

    Args:
        framework_type: What uses it.
    """
    _framework_type.Increment(framework_type)


def record_autotune_node_throughput(node_name: str, throughput: float) -> None:
    """Record the throughput of a step.

    >>> record_autotune_node_throughput("decode", 1250.0)

    Args:
        node_name: The name of the step.
        throughput: Elements per second.
    """
    _node_throughput.Set(throughput, node_name)


def record_autotune_parameter(node_name: str, name: str, value: float) -> None:
    """Record a parameter of a step.

    >>> record_autotune_parameter("decode", "num_threads", 4)

    Args:
        node_name: The name of the step.
        name: The name of the parameter.
        value: Its value.
    """
    _parameters.Set(value, node_name, name)


def record_autotune_usl_coeff(node_name: str, name: str, value: float) -> None:
    """Record a coefficient of the scalability of a step.

    >>> record_autotune_usl_coeff("decode", "contention", 0.1)

    Args:
        node_name: The name of the step.
        name: The name of the coefficient.
        value: Its value.
    """
    _usl_coefficients.Set(value, node_name, name)


def record_autotune_optimization_latency(latency_ms: float) -> None:
    """Record how long tuning took.

    >>> record_autotune_optimization_latency(12.5)

    Args:
        latency_ms: The time, in milliseconds.
    """
    _optimization_latency.Record(latency_ms)


def set_debug_server_ports(ports: list[int]) -> None:
    """Record the ports of debug servers.

    >>> set_debug_server_ports([8080])

    Args:
        ports: The ports.
    """
    if ports:
        _debug_server_ports.Set(",".join(map(str, ports)))


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args, *kwargs.values())
