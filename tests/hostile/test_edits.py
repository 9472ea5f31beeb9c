"""Hypothesis edits samples of the formats that gristmill parses itself, and shrinks what fails.

`HOSTILE_INPUTS`, which `make fuzz` sets, is also the number of examples here.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.parsers import PARSERS
from tests.hostile.run import judge

NAMES = ["npy", "npz", "idx", "idx-gz", "jsonl", "tfrecord", "tar", "example"]

EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 16), st.binary(max_size=16)), min_size=1, max_size=4
)
"""Where, as a share of the file, how many bytes are replaced, and by what."""


@pytest.mark.filterwarnings("ignore")  # of NumPy about odd headers
@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=int(os.environ.get("HOSTILE_INPUTS", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(edits=EDITS)
def test_edited_files_are_read_as_by_the_reference_library_or_refused(
    name: str, edits: list[tuple[float, int, bytes]]
) -> None:
    parser = PARSERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a{parser.suffix}")
        parser.make(path)
        data = path.read_bytes()
        for share, count, replacement in edits:
            at = int(share * len(data))
            data = data[:at] + replacement + data[at + count :]
        path.unlink()
        path.write_bytes(data)
        assert judge(parser, path) in ("equal", "refused")
