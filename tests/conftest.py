"""What all tests share."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A property says nothing of speed, and other programs may keep the processors busy.
settings.register_profile("gristmill", settings(), deadline=None, print_blob=True)
settings.load_profile("gristmill")


def pytest_configure() -> None:
    """Let Ctrl-C interrupt the tests, though a shell that starts them with `&` ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _cache_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep indexes, queries and fetched files out of the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def _collect_only_what_tests_make() -> None:
    """Keep the garbage collector from the libraries that are imported by now.

    With PyTorch, TensorFlow and JAX in one process a collection takes most of a second, and many
    tests ask for some. What earlier tests left goes first: frozen it would never.
    """
    gc.collect()
    gc.freeze()
