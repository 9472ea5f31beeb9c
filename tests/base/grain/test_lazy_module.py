"""A module of Grain that is imported when it is first used."""

import subprocess
import sys

PROGRAM = """
import sys
from gristmill import MapDataset
from gristmill._base.grain.lazy_module import add_lazy_grain

add_lazy_grain()
assert "grain" in sys.modules
assert isinstance(MapDataset.range(3), MapDataset)
assert isinstance(iter(MapDataset.range(3)), object)
assert "grain.experimental" not in sys.modules
import grain
assert isinstance(MapDataset.range(3), grain.MapDataset)
from grain.experimental import ZipMapDataset
assert ZipMapDataset
"""


def test_grain_is_imported_when_a_program_imports_it():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_nothing_happens_without_grain():
    hidden = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    program = (
        "import gristmill, sys\n"
        "from gristmill._base.grain.lazy_module import add_lazy_grain\n"
        f"{hidden}add_lazy_grain()\nassert 'grain' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
