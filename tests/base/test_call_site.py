import subprocess
import sys
from pathlib import Path

import pytest

from gristmill import MapDataset
from gristmill._base.call_site import call_site, warn_user
from gristmill.errors import GristmillWarning


def test_the_call_site_is_the_line_outside_gristmill():
    dataset = MapDataset.range(3)
    with pytest.raises(ZeroDivisionError) as caught:
        dataset.map(lambda x: 1 // x)[0]  # the line that adds the transform

    line = (
        Path(__file__)
        .read_text()
        .splitlines()
        .index("        dataset.map(lambda x: 1 // x)[0]  # the line that adds the transform")
    )
    assert f"{__file__}:{line + 1}" in "".join(caught.value.__notes__)


def test_the_call_site_of_a_test_is_the_test():
    file, _, line = call_site().rpartition(":")

    assert file == __file__
    assert "call_site().rpartition" in Path(file).read_text().splitlines()[int(line) - 1]


def test_a_warning_points_at_the_line_of_the_user():
    with pytest.warns(GristmillWarning, match="slow") as caught:
        warn_user("slow")

    assert caught[0].filename == __file__


def test_a_program_without_a_file_has_a_call_site():
    program = "from gristmill._base.call_site import call_site; print(call_site())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "<string>:1\n"
