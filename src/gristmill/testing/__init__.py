"""Suites that hold other people's classes to what gristmill expects of them."""

from gristmill.testing._source_suite import SourceSuite

__all__ = ["SourceSuite"]
