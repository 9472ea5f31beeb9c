"""Fixtures of the stores with injected faults, for servers that are hostile."""

from tests.io.conftest import _only_this_machine, _short_backoff, serve_http  # noqa: F401
