import gzip
from pathlib import Path

import pytest

from gristmill._demo.mnist import FILE_NAMES, MnistError, load_mnist


def test_a_small_file_that_unpacks_to_much_more_than_mnist_is_refused(tmp_path: Path):
    for name in FILE_NAMES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(bytes(2**20)) * 257)
    with pytest.raises(MnistError, match=r"unpacks to more than 268,435,456 bytes\. Copy or"):
        load_mnist(tmp_path)
