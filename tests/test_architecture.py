"""Imports point down, and importing gristmill costs next to nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "gristmill"
LAYERS = [  # low to high: a module imports from its own folder, or from a lower row
    "types errors _background",  # they need nothing
    # They need errors and types alone.
    "_check _extras _site _span _tree _seed _progress _example _picture _pump _aligned",
    "options _columns _places _arrow",  # what is checked, a tree, a span, or an extra
    "files",  # how they are read is an option
    "sources order transforms batch observe",  # siblings, blind to each other
    "checkpoint",
    "plan",
    "execute",
    "loader dataset",
    "testing command adapters feeding",  # what is over both faces
    "constants samplers sharding multiprocessing experimental",  # Grain's names, in modules
    "python",  # Grain's names in one module, those above among them
    "demo __main__",
]
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row.split()}
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]
HOMES = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in MODULES}


def _imports(path: Path) -> list[str]:
    """Give all that a module imports, as `gristmill.plan` or `numpy.typing`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_every_module_has_a_row_and_every_name_in_a_row_is_a_module():
    assert set(LEVEL) == HOMES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path):
    home = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if home == "demo":
        return  # a user's program: it takes what is public, from where users take it
    for name in _imports(path):
        assert name != "gristmill", "import what you need, not the whole"
        target = name.split(".")[1] if name.startswith("gristmill.") else home
        assert target == home or LEVEL[target] < LEVEL[home], f"{home} may not import {target}"


@pytest.mark.parametrize("row", LAYERS)
def test_a_row_stands_no_higher_than_it_must(row: str):
    """A row without an import from the one below could be merged with it: the list would lie."""
    level = LAYERS.index(row)
    below = set(LAYERS[level - 1].split()) if level else set[str]()
    reached = {
        name.split(".")[1]
        for path in MODULES
        if path.relative_to(ROOT).parts[0].removesuffix(".py") in row.split()
        for name in _imports(path)
        if name.startswith("gristmill.")
    }
    assert level == 0 or reached & below or row.startswith(STANDS_APART)


STANDS_APART = ("checkpoint", "plan", "constants", "demo")
"""Rows that could stand lower, and stand where a record's path takes them."""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_reaches_into_the_private_modules_of_another_folder(path: Path):
    home = path.relative_to(ROOT).parts[0]
    for name in _imports(path):
        parts = name.split(".")
        is_private = parts[0] == "gristmill" and any(p.startswith("_") for p in parts[2:])
        assert not is_private or parts[1] == home, f"{name} is private"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_optional_packages_are_loaded_through_extras_or_by_the_demo(path: Path):
    home = path.relative_to(ROOT).parts[0]
    allowed = {"gristmill", "numpy", "cloudpickle", *sys.stdlib_module_names}
    if home == "demo":
        allowed |= {"jax", "rich"}
    assert {name.partition(".")[0] for name in _imports(path)} <= allowed


IMPORT = """
import sys, threading
import {module}
heavy = "jax orbax rich torch tensorflow grain absl multiprocessing.pool".split()
heavy += "pyarrow array_record fsspec PIL datasets asyncio".split()
print([name for name in heavy if name in sys.modules], threading.active_count())
"""


@pytest.mark.parametrize("module", ["gristmill", "gristmill.python", "gristmill.experimental"])
def test_importing_loads_no_extra_and_starts_no_thread(module: str):
    program = IMPORT.format(module=module)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("[] 1\n", "")
