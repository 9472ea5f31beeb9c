"""The extensions that the site is built with do what their examples show."""

import doctest
import importlib
import inspect
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import GenericAlias, ModuleType, UnionType
from typing import Any

import pytest

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_ext"
PYTHONS_OWN = {inspect.getdoc(kind) for kind in (str, frozenset, UnionType, GenericAlias, Any)}


@pytest.mark.parametrize("name", ["api_reference", "llms_txt", "root_pages"])
def test_the_examples_of_an_extension_run(name: str):
    found = doctest.testmod(load_extension(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_reference_describes_every_public_name_in_its_own_words():
    reference = load_extension("api_reference")
    for module_name in reference.MODULES:
        module = importlib.import_module(module_name)
        for name in reference.public_names(module):
            value = getattr(module, name)
            words = reference.documentation_of(name, value)
            assert words, f"{module_name}.{name} has no docstring"
            assert words not in PYTHONS_OWN


def test_the_page_of_a_name_that_is_no_longer_public_is_deleted(tmp_path: Path):
    (tmp_path / "gristmill.old.md").touch()
    reference = load_extension("api_reference")
    reference.write_pages(tmp_path)
    names = {path.stem for path in tmp_path.glob("*.md")}
    assert names >= {"index", "gristmill.load", "gristmill.SharedMemoryDataSource"}
    assert "gristmill.InMemoryDataSource" not in names  # an alias, in the table of its module
    assert not (tmp_path / "gristmill.old.md").exists()


def test_the_index_of_the_reference_links_to_every_name(tmp_path: Path):
    reference = load_extension("api_reference")
    reference.write_pages(tmp_path)
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for module_name in reference.MODULES:
        for name in reference.public_names(importlib.import_module(module_name)):
            assert f"[`{name}`](" in index


def test_the_methods_of_a_public_base_are_described_on_its_page_only(tmp_path: Path):
    load_extension("api_reference").write_pages(tmp_path)
    derived = (tmp_path / "gristmill.experimental.CacheIterDataset.md").read_text("utf-8")
    assert {"IterDataset", "StreamSteps"} <= set(re.split("[ ,\n]+", derived))  # autodoc leaves out
    assert "(gristmill.IterDataset.md)" in derived
    base = (tmp_path / "gristmill.IterDataset.md").read_text("utf-8")
    assert "It also has" not in base


def load_extension(name: str) -> ModuleType:
    spec = spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
