"""What an import loads, counted in modules: the same on every machine, unlike its duration."""

import subprocess
import sys

import pytest

START = {
    *("gristmill", "gristmill._base", "gristmill._base.grain", "gristmill._base.grain.mode"),
    *("gristmill._base.lazy", "gristmill._base.version"),
}
"""What `import gristmill` loads: enough to know where each public name is defined."""

UNUSED = {
    *("array_record", "datasets", "fsspec", "jax", "pandas", "PIL", "pyarrow", "tensorflow"),
    *("asyncio", "concurrent.futures", "csv", "email", "http", "importlib.metadata", "torch"),
    *("multiprocessing.pool", "sqlite3", "tarfile", "unittest", "xml", "zipfile"),
}
"""What a pipeline over arrays never needs, neither in the program nor in its workers."""


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a new interpreter with some arguments imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def of_gristmill(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "gristmill"}


def test_importing_gristmill_loads_neither_numpy_nor_any_part_of_gristmill():
    modules = imported_by("-c", "import gristmill")

    assert of_gristmill(modules) == START
    assert "numpy" not in modules


@pytest.mark.parametrize("facade", ["checkpoint", "experimental", "python", "sources"])
def test_a_module_that_lists_public_names_loads_none_of_them(facade: str):
    modules = imported_by("-c", f"import gristmill.{facade}")

    assert of_gristmill(modules) == START | {f"gristmill.{facade}"}


def test_help_loads_the_parser_and_no_command():
    modules = imported_by("-m", "gristmill", "--help")

    added = {"_addresses", "_cli", "_cli.main", "_printable", "errors"}
    assert of_gristmill(modules) == START | {f"gristmill.{name}" for name in added}
    assert modules.isdisjoint({"numpy", *UNUSED})


@pytest.mark.parametrize("name", ["MapDataset", "IterDataset", "DataLoader", "load"])
def test_a_pipeline_loads_no_adapter_no_file_format_and_no_command(name: str):
    modules = imported_by("-c", f"from gristmill import {name}")

    assert modules.isdisjoint(UNUSED)
    assert _starting_with(modules, "_api.adapters", "_api.feeding", "_cli", "_demo") == set()
    assert _starting_with(modules, *FILE_FORMATS) == set()
    assert len(of_gristmill(modules)) <= 275


def test_a_worker_loads_what_computes_blocks():
    modules = imported_by("-c", "import gristmill._engine.executors.processes.worker_main")

    assert modules.isdisjoint(UNUSED)
    assert _starting_with(modules, "_api", "_cli", "_demo", "_io", *FILE_FORMATS) == set()
    assert len(of_gristmill(modules)) <= 148


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("ArrayRecordDataSource", "sqlite3 tarfile"),
        ("ParquetSource", "sqlite3 tarfile zipfile"),
        ("SqliteSource", "tarfile zipfile"),
        ("TarSource", "sqlite3"),
    ],
)
def test_a_source_does_not_load_other_formats(name: str, others: str):
    modules = imported_by("-c", f"from gristmill.sources import {name}")

    assert modules.isdisjoint(others.split())


FILE_FORMATS = [f"_data.sources.{kind}" for kind in ("arrays", "records", "sqlite", "tables")]


def _starting_with(modules: set[str], *packages: str) -> set[str]:
    prefixes = tuple(f"gristmill.{package}" for package in packages)
    return {name for name in modules if name.startswith(prefixes)}
