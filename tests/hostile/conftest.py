"""Fixtures of the stores with injected faults, for servers that are hostile."""

from tests.io.conftest import (  # noqa: F401
    _only_this_machine,
    _short_backoff,
    s3,
    serve_http,
    serve_s3,
)
