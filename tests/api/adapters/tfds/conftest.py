"""Fixtures of the tests of TFDS datasets."""

import pytest

from tests.api.adapters.tfds.tfds_builders import Prepared


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("tfds"))
