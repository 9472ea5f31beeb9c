"""What can be imported is exactly what is listed, and says what it is."""

import importlib
import importlib.metadata
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import pytest

import gristmill

FACES = [
    "gristmill",
    "gristmill.checkpoint",
    "gristmill.constants",
    "gristmill.experimental",
    "gristmill.multiprocessing",
    "gristmill.python",
    "gristmill.python.experimental",
    "gristmill.samplers",
    "gristmill.sharding",
    "gristmill.sources",
    "gristmill.testing",
    "gristmill.transforms",
]
FACE = pytest.mark.parametrize(
    "module", [importlib.import_module(name) for name in FACES], ids=FACES
)


@FACE
def test_the_list_is_sorted_and_holds_no_name_twice(module: ModuleType):
    constants = sorted(name for name in module.__all__ if name.isupper())
    classes = sorted(name for name in module.__all__ if name[0].isupper() and not name.isupper())
    others = sorted(name for name in module.__all__ if not name[0].isupper())

    assert list(module.__all__) == constants + classes + others  # the order of isort
    assert len(set(module.__all__)) == len(module.__all__)


@FACE
def test_what_can_be_imported_is_what_is_listed(module: ModuleType):
    public = {name for name in vars(module) if not name.startswith("_")}
    not_listed = public - set(module.__all__)

    assert set(module.__all__) <= public
    assert {name for name in not_listed if not _is_own_submodule(vars(module)[name])} == set()


def _is_own_submodule(value: Any) -> bool:
    return inspect.ismodule(value) and value.__name__.startswith("gristmill.")


@FACE
def test_a_star_import_gives_the_list(module: ModuleType):
    names: dict[str, Any] = {}
    exec(f"from {module.__name__} import *", names)

    assert set(names) - {"__builtins__"} == set(module.__all__)


@FACE
def test_every_public_name_has_a_docstring(module: ModuleType):
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
            assert (value.__doc__ or "").strip(), name


@FACE
def test_every_public_method_has_a_docstring(module: ModuleType):
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    methods = [
        (kind.__qualname__, name)
        for kind in classes
        if kind.__module__.startswith("gristmill") and not _is_protocol(kind)
        for name, method in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(method) or isinstance(method, property))
        if not inspect.getdoc(getattr(kind, name) if inspect.isfunction(method) else method)
    ]

    assert methods == []


def _is_protocol(kind: type) -> bool:
    return getattr(kind, "_is_protocol", False)


def test_the_docstring_examples_are_found_by_pytest():
    """Modules below are collected with `--doctest-modules`: each must import on its own."""
    for found in pkgutil.walk_packages(gristmill.__path__, "gristmill."):
        if not found.name.startswith("gristmill.demo"):
            assert (importlib.import_module(found.name).__doc__ or "").strip(), found.name


def test_the_version_is_that_of_the_package():
    assert gristmill.__version__ == importlib.metadata.version("gristmill")
