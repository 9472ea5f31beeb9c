"""What all tests share."""

from collections.abc import Iterator

import pytest

from gristmill.execute import _stream


@pytest.fixture(scope="session", autouse=True)
def _run_ahead_from_the_start() -> Iterator[None]:
    """Let a stream that may run ahead do so at once, so that the tests meet its thread.

    Otherwise it does so when the consumer is busy, which tests hardly are.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_stream, "BUSY_SHARE", 0.0)
        yield
