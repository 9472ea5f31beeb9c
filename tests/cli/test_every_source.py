"""The source of every format passes the source suite."""

from pathlib import Path
from typing import Any

import pytest

from gristmill.sources import open_source
from gristmill.testing import SourceSuite
from tests.cli.formats import MAKERS


class TestEverySource(SourceSuite):
    @pytest.fixture(params=MAKERS)
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        return open_source(MAKERS[request.param](tmp_path))
