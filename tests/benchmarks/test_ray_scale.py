"""The calculation for large Ray clusters prints what the documentation shows."""

from pathlib import Path

import pytest

from benchmarks.ray_scale import main


def test_the_table_in_the_documentation_is_what_the_calculation_prints(
    capsys: pytest.CaptureFixture[str],
):
    main()

    assert capsys.readouterr().out in (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
