"""Test suites for classes that users write for gristmill."""

from gristmill.testing._source_suite import SourceSuite

__all__ = ["SourceSuite"]
