"""Imports point down, and importing gristmill costs next to nothing."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "gristmill"
LAYERS = [  # low to high: a module imports from its own package, or from a lower row
    "_addresses _printable",  # what no message may show
    "types errors",
    "_base",
    "options",  # checked by `_base`, read by everything above
    "_io",
    "_data _metrics",
    "_views",
    "_checkpoint",
    "_plan",
    "_engine",
    "_api",
    "_demo checkpoint constants exporters monitoring multiprocessing samplers sharding sources "
    "testing transforms",
    "_cli demo experimental",
    "_as_grain",
    "as_grain python __main__",
]
"""Packages with an underscore are internal; the others are facades over all of them."""

DEFINED_HERE = {"types", "errors", "options"}
"""Public modules that hold definitions, because every internal package uses them."""

LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row.split()}
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]
HOMES = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in MODULES}


def _imports(path: Path) -> list[str]:
    """Return all that a module imports, as `gristmill._plan.build` or `numpy.typing`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_every_import_is_of_a_module_that_exists():
    """The type checker finds these too, but takes a minute; this names where a module has moved."""
    files = [path.relative_to(ROOT.parent).with_suffix("") for path in MODULES]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in files}
    tests = sorted(Path(__file__).parent.rglob("*.py"))

    missing = {
        (str(path), name)
        for path in [*MODULES, *tests]
        for name in _imports(path)
        if name.startswith("gristmill._") and not {name, name.rpartition(".")[0]} & modules
    }
    named = {name.split(".")[-2] for _, name in missing}
    assert not missing, sorted(each for each in modules if each.rpartition(".")[2] in named)


def test_every_module_has_a_row_and_every_name_in_a_row_is_a_module():
    assert set(LEVEL) == HOMES


def test_contributing_lists_the_same_layers():
    page = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("| `src/gristmill/` |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    names = [re.findall(r"`([a-z_]+)(?:/|\.py)`", row) for row in rows]

    assert [set(row) for row in reversed(names)] == [set(row.split()) for row in LAYERS]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/tuning.md"])
def test_the_tour_of_the_code_names_files_that_exist(page: str):
    repository = ROOT.parents[1]
    files = [path.relative_to(repository).as_posix() for path in repository.glob("tests/**/*.py")]
    files += [path.relative_to(repository).as_posix() for path in repository.glob("scripts/*.py")]
    files += [path.relative_to(repository).as_posix() for path in ROOT.rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (repository / page).read_text(encoding="utf-8"))

    assert named
    assert [
        name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ] == []


MAX_LINES = 400
"""Without docstrings, which are half of some of the classes that users see."""


def _code_lines(path: Path) -> int:
    """Return the number of lines of a module without docstrings."""
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        node.body[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    ]
    return source.count("\n") - sum(
        (text.end_lineno or text.lineno) - text.lineno + 1 for text in docstrings
    )


def test_modules_have_fewer_than_400_lines_of_code():
    lengths = {path.relative_to(ROOT).as_posix(): _code_lines(path) for path in MODULES}

    assert {name: length for name, length in lengths.items() if length >= MAX_LINES} == {}


def test_any_is_rare():
    """`Any` is for what users bring; below 20 per 1,000 lines one can read the other types."""
    code = "".join(path.read_text(encoding="utf-8") for path in MODULES)

    assert len(re.findall(r"\bAny\b", code)) < 20 * code.count("\n") / 1000


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path):
    home = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if home == "_demo":
        return  # a user's program: it imports what is public, as users do
    for name in _imports(path):
        assert name != "gristmill", "import what you need, not the whole"
        target = name.split(".")[1] if name.startswith("gristmill.") else home
        assert target == home or LEVEL[target] < LEVEL[home], f"{home} may not import {target}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_module_itself_uses_its_private_names(path: Path):
    for name in _imports(path):
        *module, last = name.split(".")
        assert not (module[:1] == ["gristmill"] and len(module) > 1 and last.startswith("_")), name


FACADES = [
    path
    for path in sorted(ROOT.glob("[a-z]*.py")) + sorted(ROOT.glob("python/*.py"))
    if path.stem not in DEFINED_HERE
]


@pytest.mark.parametrize("path", FACADES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_modules_only_import_and_list(path: Path):
    """What is public is found in `__all__`; how it works is found in an internal package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.Expr | ast.If
    others = [type(node).__name__ for node in tree.body if not isinstance(node, allowed)]

    assert others == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_optional_packages_are_loaded_through_extras_or_by_the_demo(path: Path):
    home = path.relative_to(ROOT).parts[0]
    allowed = {"gristmill", "numpy", "cloudpickle", *sys.stdlib_module_names}
    if home == "_demo":
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
