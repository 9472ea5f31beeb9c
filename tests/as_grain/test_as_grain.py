"""`import grain` imports gristmill: what is found, what is refused, and in which processes."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import grain
import pytest

import gristmill
from gristmill._as_grain.modules import EXTRA_NAMES, FACADES
from gristmill.errors import GrainImportedError


def python(*arguments: str, code: int = 0, **variables: str) -> str:
    """Return what a new interpreter prints, or the last line of its traceback."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.strip() if code == 0 else done.stderr.strip().splitlines()[-1]


def as_grain(program: str) -> str:
    return python("-c", f"import gristmill\ngristmill.as_grain()\n{program}")


# What is found


PUBLIC = [
    name
    for name in ["grain", *(each.name for each in pkgutil.walk_packages(grain.__path__, "grain."))]
    if "._src" not in name and not name.startswith("grain.proto") and "_test" not in name
]


def test_every_public_module_of_grain_exists_in_its_place():
    assert set(PUBLIC) == {name for name in FACADES if "._src" not in name}


IN_OLDER_RELEASES = {
    "grain._src.core.tree",
    "grain._src.python.checkpoint_handlers",
    "grain._src.python.shared_memory_array",
}


@pytest.mark.parametrize("module", [name for name in FACADES if "._src" in name])
def test_every_internal_module_exists_in_grain(module: str):
    if module not in IN_OLDER_RELEASES:
        importlib.import_module(module)


@pytest.mark.parametrize("module", EXTRA_NAMES)
def test_every_extra_name_exists_in_grain_and_is_found(module: str):
    for name in EXTRA_NAMES[module]:
        if module not in IN_OLDER_RELEASES:
            assert hasattr(importlib.import_module(module), name)
        assert as_grain(f"from {module} import {name}\nprint({name!r})") == name


def test_the_classes_are_those_of_gristmill():
    program = """
import grain
import grain.python as older
from grain.experimental import ThreadPrefetchIterDataset as public
from grain._src.python.dataset import dataset
from grain._src.python.dataset.transformations.prefetch import ThreadPrefetchIterDataset
print(
    grain.MapDataset is older.MapDataset is dataset.MapDataset is gristmill.MapDataset,
    ThreadPrefetchIterDataset is public is gristmill.experimental.ThreadPrefetchIterDataset,
    grain.python.experimental.PerformanceConfig is gristmill.experimental.PerformanceConfig,
    isinstance(gristmill.load(range(3)), grain.DataLoader),
)"""
    assert as_grain(program) == "True True True True"


def test_metrics_are_found_where_grain_defines_them():
    program = """
import grain
from grain._src.core.monitoring import Counter
print(grain.monitoring.Counter is Counter)
"""
    assert as_grain(program) == "True"


def test_modules_have_the_file_of_what_replaces_them():
    program = """
import inspect
import grain._src.python.dataset.stats
import grain.samplers
print(grain.__file__ == gristmill.__file__ == grain._src.python.dataset.stats.__file__)
print(inspect.getfile(grain.samplers) == gristmill.samplers.__file__)"""
    assert as_grain(program) == "True\nTrue"


def test_a_mix_can_be_constructed_by_its_class():
    program = """
from grain._src.python.dataset.transformations.mix import MixedIterDataset
import grain
streams = [grain.MapDataset.range(*each).to_iter_dataset() for each in ((0, 4), (7, 9))]
print(list(MixedIterDataset(streams, [2, 1])) == list(grain.IterDataset.mix(streams, [2, 1])))
print(list(MixedIterDataset({"a": streams[0], "b": streams[1]})))"""
    assert as_grain(program) == "True\n[0, 7, 1, 8, 2]"


def test_a_star_import_and_dir_list_the_public_names():
    program = """
import grain.transforms
names = {}
exec("from grain.transforms import *", names)
print(set(gristmill.transforms.__all__) == names.keys() - {"__builtins__"})
print(set(dir(grain.transforms)) >= set(gristmill.transforms.__all__))"""
    assert as_grain(program) == "True\nTrue"


def test_the_version_is_that_of_the_grain_whose_names_these_are():
    assert as_grain("import grain; print(grain.__version__)") == grain.__version__


# What is refused


PACKING = "grain._src.python.dataset.transformations.packing"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (
            f"from {PACKING} import SingleBinPackIterDataset",
            "`grain.experimental.FirstFitPackIterDataset(ds, ..., num_packing_bins=1)`",
        ),
        ("from grain._src.core.constants import MapDataset", "`grain.MapDataset`"),
        ("import grain._src.core.exceptions", "the public names of `grain`"),
        ("from grain._src.python import grain_pool", "the public names of `grain`"),
        ("import grain._src.python.nothing", "the public names of `grain`"),
        ("from grain import MapDatset", "the public names of `grain`"),
    ],
)
def test_a_missing_name_is_an_import_error_that_reports_what_to_use_instead(
    line: str, instead: str
):
    words = line.split()
    name = f"{words[1]}.{words[3]}" if words[0] == "from" else words[1]
    program = f"try:\n    {line}\nexcept ImportError as error:\n    print(error)"

    assert as_grain(program) == (
        f"gristmill, which replaces Grain in this process, has no `{name}`. Use {instead}."
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        (f"{PACKING}.SingleBinPackIterDataset", "`grain.experimental.FirstFitPackIterDataset("),
        ("grain._src.python.dataset.stats.make_stats", "the public names of `grain`"),
        ("grain._src.core.constants.MapDataset", "`grain.MapDataset`"),
    ],
)
def test_a_missing_attribute_reports_what_to_use_instead(name: str, instead: str):
    module = name.rpartition(".")[0]
    program = (
        f"import {module}\ntry:\n    {name}\nexcept AttributeError as error:\n    print(error)"
    )

    assert f"has no `{name}`. Use {instead}" in as_grain(program)


def test_a_program_can_ask_whether_a_module_has_a_name():
    program = """
from grain._src.python.dataset.transformations import packing
print(hasattr(packing, "SingleBinPackIterDataset"), hasattr(packing, "FirstFitPackIterDataset"))"""
    assert as_grain(program) == "False True"


def test_it_refuses_when_grain_is_imported():
    with pytest.raises(GrainImportedError, match="`grain` has already been imported"):
        gristmill.as_grain()


def test_without_it_grain_is_grain():
    assert "_src" in inspect.getfile(grain.MapDataset)


# Three ways to turn it on


def test_a_second_call_does_nothing():
    assert as_grain("gristmill.as_grain(); import grain; print(grain)") == (
        "<module 'grain' (gristmill)>"
    )


def test_the_function_can_be_called_after_an_import_of_the_module():
    program = "import gristmill.as_grain\ngristmill.as_grain()\nimport grain\nprint(grain)"
    assert python("-c", program) == "<module 'grain' (gristmill)>"


@pytest.mark.parametrize(("value", "expected"), [("1", "gristmill"), ("0", "grain"), ("", "grain")])
def test_the_environment_variable_takes_effect_when_gristmill_is_imported(
    value: str, expected: str
):
    program = "import gristmill, grain; print(grain.MapDataset.__module__.partition('.')[0])"
    assert python("-c", program, GRISTMILL_AS_GRAIN=value) == expected


def test_the_variable_without_an_import_of_gristmill_first_is_an_error_with_the_remedy():
    error = python("-c", "import grain, gristmill", code=1, GRISTMILL_AS_GRAIN="1")
    assert "GrainImportedError" in error
    assert "import it before Grain, let Python do so with a line in a `.pth` file" in error


@pytest.mark.parametrize(("value", "expected"), [("1", "gristmill"), ("0", "grain"), ("", "grain")])
def test_the_documented_line_of_a_pth_file_imports_gristmill_first(
    value: str, expected: str, tmp_path: Path
):
    page = Path(__file__).parents[2] / "docs" / "grain_programs.md"
    (line,) = re.findall(r"^\$ echo '(.*)' > gristmill_as_grain\.pth$", page.read_text(), re.M)
    (tmp_path / "gristmill_as_grain.pth").write_text(line)
    program = (
        f"import site, sys; site.addsitedir({str(tmp_path)!r})\n"
        "print('gristmill' in sys.modules)\n"
        "import grain; print(grain.MapDataset.__module__.partition('.')[0])"
    )
    is_imported, package = python("-c", program, GRISTMILL_AS_GRAIN=value).split()
    assert (is_imported, package) == (str(expected == "gristmill"), expected)


PROGRAM = """
import sys
import grain
import helper

def add(x):
    return helper.add(x) + grain.MapDataset.range(3)[1]

if __name__ == "__main__":
    ds = grain.MapDataset.range(4).map(add).to_iter_dataset()
    options = grain.MultiprocessingOptions(num_workers=1)
    print(sys.argv[1:], list(ds.mp_prefetch(options)), ds.__class__.__module__.split(".")[0])
"""
HELPER = """
import grain.python

def add(x):
    return x + len(grain.__version__) + (0 if "gristmill" in repr(grain) else 100)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_a_program_runs_unchanged_and_so_do_its_workers(program: Path):
    assert python("-m", "gristmill.as_grain", str(program), "--steps", "3") == (
        "['--steps', '3'] [7, 8, 9, 10] gristmill"
    )


def test_a_worker_in_a_fresh_interpreter_imports_gristmill_too(program: Path):
    (program.parent / "helper.py").write_text(  # a module with a thread keeps it from being forked
        HELPER + "\nimport threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )

    assert python("-m", "gristmill.as_grain", str(program)).endswith("[7, 8, 9, 10] gristmill")


def test_a_module_runs_unchanged(program: Path):
    arguments = ["-m", "gristmill.as_grain", "-m", "train", "x"]
    path = os.pathsep.join([str(program.parent), os.environ.get("PYTHONPATH", "")])
    assert python(*arguments, PYTHONPATH=path) == "['x'] [7, 8, 9, 10] gristmill"


def test_help_and_wrong_usage_print_the_usage():
    assert python("-m", "gristmill.as_grain", "--help").startswith("usage: python -m")
    assert "worker processes" in python("-m", "gristmill.as_grain", code=2)


def test_a_program_that_cannot_be_opened_is_reported_as_by_python(tmp_path: Path):
    missing = str(tmp_path / "missing.py")
    done, expected = (
        subprocess.run(
            [sys.executable, *arguments, missing], capture_output=True, text=True, check=False
        )
        for arguments in (["-m", "gristmill.as_grain"], [])
    )
    assert done.returncode == expected.returncode == 2
    assert done.stderr == expected.stderr


def test_the_exit_status_is_that_of_the_program(tmp_path: Path):
    (tmp_path / "exit.py").write_text("raise SystemExit(3)")
    done = subprocess.run(
        [sys.executable, "-m", "gristmill.as_grain", str(tmp_path / "exit.py")],
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
