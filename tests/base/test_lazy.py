import sys
from pathlib import Path
from types import ModuleType

import pytest

from gristmill._base.lazy import lazy_names


@pytest.fixture
def facade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package whose names are those of `lazy_target`, and its own submodule `part`."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lazy_target.py").write_text("one, two = 1, 2")
    (tmp_path / "facade").mkdir()
    (tmp_path / "facade" / "part.py").write_text("three = 3")
    package = ModuleType("facade")
    package.__path__ = [str(tmp_path / "facade")]
    package.__dict__["__all__"] = ["One", "part", "two"]
    for name in ("facade", "facade.part", "lazy_target"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "facade", package)
    imports = {"facade": "part", "lazy_target": "one as One, two"}
    package.__dict__["__getattr__"], package.__dict__["__dir__"] = lazy_names("facade", imports)
    return package


def test_a_module_is_imported_when_one_of_its_names_is_used(facade: ModuleType):
    assert "lazy_target" not in sys.modules
    assert (facade.One, facade.two) == (1, 2)
    assert "lazy_target" in sys.modules


def test_a_name_is_looked_up_once(facade: ModuleType):
    assert facade.One == 1
    assert vars(facade)["One"] == 1


def test_a_submodule_is_imported_when_it_is_used(facade: ModuleType):
    assert "facade.part" not in sys.modules
    assert facade.part.three == 3
    assert vars(facade)["part"] is sys.modules["facade.part"]


@pytest.mark.parametrize("name", ["one", "three", "lazy_target"])
def test_other_names_do_not_exist(facade: ModuleType, name: str):
    with pytest.raises(AttributeError, match=f"module 'facade' has no attribute '{name}'"):
        getattr(facade, name)


def test_the_listed_names_appear_in_dir_before_they_are_imported(facade: ModuleType):
    assert {"One", "part", "two"} <= set(dir(facade))
    assert "lazy_target" not in sys.modules


def test_an_error_while_importing_keeps_its_type(tmp_path: Path, facade: ModuleType):
    (tmp_path / "lazy_target.py").write_text("raise RuntimeError('no license')")

    with pytest.raises(RuntimeError, match="no license"):
        _ = facade.One
