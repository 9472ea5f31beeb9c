"""What workers have of the program is out of date once the program has something else."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gristmill._engine.executors.processes.inherited_state import InheritedState, LoadedModules


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module that is imported only after `LoadedModules` was made."""
    (tmp_path / "edited_module.py").write_text("CODE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "edited_module", raising=False)
    return importlib.import_module("edited_module")


def test_a_module_that_is_loaded_again_has_changed(edited: ModuleType):
    modules = LoadedModules()
    assert not modules.have_changed()

    importlib.reload(edited)

    assert modules.have_changed()
    assert modules.have_changed()
    assert not LoadedModules().have_changed()


def test_a_module_that_is_removed_and_imported_again_has_changed(
    edited: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    modules = LoadedModules()

    monkeypatch.delitem(sys.modules, "edited_module")
    assert not modules.have_changed()
    importlib.import_module("edited_module")

    assert modules.have_changed()


def test_a_module_that_is_imported_later_has_not_changed(
    edited: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as before:
        before.delitem(sys.modules, "edited_module")
        modules = LoadedModules()

    assert not modules.have_changed()
    importlib.reload(edited)
    assert modules.have_changed()


def test_a_lazy_module_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "lazy_module.py").write_text("raise AssertionError('loaded')\n")
    spec = importlib.util.spec_from_file_location("lazy_module", tmp_path / "lazy_module.py")
    assert spec is not None
    assert spec.loader is not None
    lazy = importlib.util.module_from_spec(spec)
    importlib.util.LazyLoader(spec.loader).exec_module(lazy)
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    monkeypatch.setitem(sys.modules, "no_module", object())  # pyright: ignore[reportArgumentType]

    assert not LoadedModules().have_changed()


def test_another_environment_path_or_folder_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    state = InheritedState()
    assert state.is_current

    with monkeypatch.context() as changed:
        changed.setenv("COLOUR", "red")
        assert not state.is_current
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [*sys.path, str(tmp_path)])
        assert not state.is_current
    with monkeypatch.context() as changed:
        changed.chdir(tmp_path)
        assert not state.is_current
    assert state.is_current


def test_a_folder_that_was_deleted_is_still_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.chdir(folder)
    state = InheritedState()

    os.rmdir(folder)

    assert state.is_current
