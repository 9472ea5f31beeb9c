"""The public names: exactly those that are listed, documented, and without engine details."""

import ast
import importlib
import importlib.metadata
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import gristmill
from gristmill import experimental

FACADES = [
    "gristmill",
    "gristmill.checkpoint",
    "gristmill.constants",
    "gristmill.demo",
    "gristmill.errors",
    "gristmill.experimental",
    "gristmill.exporters",
    "gristmill.monitoring",
    "gristmill.multiprocessing",
    "gristmill.options",
    "gristmill.python",
    "gristmill.python.experimental",
    "gristmill.samplers",
    "gristmill.sharding",
    "gristmill.sources",
    "gristmill.testing",
    "gristmill.transforms",
    "gristmill.types",
]
EACH_FACADE = pytest.mark.parametrize(
    "module", [importlib.import_module(name) for name in FACADES], ids=FACADES
)


@EACH_FACADE
def test_the_list_is_sorted_and_holds_no_name_twice(module: ModuleType):
    constants = sorted(name for name in module.__all__ if name.isupper())
    classes = sorted(name for name in module.__all__ if name[0].isupper() and not name.isupper())
    others = sorted(name for name in module.__all__ if not name[0].isupper())

    assert list(module.__all__) == constants + classes + others  # the order of isort
    assert len(set(module.__all__)) == len(module.__all__)


@EACH_FACADE
def test_what_can_be_imported_is_what_is_listed(module: ModuleType):
    names = filter(str.isidentifier, (*dir(module), *vars(module)))  # pytest adds others
    public = {name for name in names if not name.startswith("_")}
    not_listed = {name for name in public - set(module.__all__) if not name.startswith(ORBAX)}

    assert set(module.__all__) <= public
    assert {name for name in not_listed if not _is_own_submodule(getattr(module, name))} == set()


@EACH_FACADE
def test_names_that_need_an_extra_are_not_shown(module: ModuleType):
    assert [name for name in dir(module) if name.startswith(ORBAX)] == []


def _is_own_submodule(value: Any) -> bool:
    return inspect.ismodule(value) and value.__name__.startswith("gristmill.")


@EACH_FACADE
def test_a_type_checker_sees_what_is_imported_on_first_use(module: ModuleType):
    tree = ast.parse(inspect.getsource(module))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    exported = [
        (node.module, alias.name, alias.asname or alias.name)
        for node in imports
        for alias in node.names
        if alias.asname == alias.name or (alias.asname or alias.name) in module.__all__
    ]

    for origin, original, name in exported:
        if name not in MODULES_TOO and not name.startswith(ORBAX):
            seen = importlib.import_module(origin or "")
            assert getattr(module, name) is getattr(seen, original), name
    if blocks and not any(node.names[0].name == "*" for node in imports):
        assert {name for _, _, name in exported} >= set(module.__all__)


MODULES_TOO = {"as_grain"}
"""Functions that have a module of the same name, which takes their place when it is imported."""

ORBAX = ("Checkpoint", "GrainCheckpoint", "PyGrainCheckpoint")
"""How the names start that need the extra `orbax`: they are not in `__all__`, so that a star import
works without it. tests/checkpoint/test_orbax.py imports them."""


@EACH_FACADE
def test_a_name_that_does_not_exist_is_an_attribute_error(module: ModuleType):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'none'"):
        _ = module.none


@EACH_FACADE
def test_a_star_import_imports_the_list(module: ModuleType):
    names: dict[str, Any] = {}
    exec(f"from {module.__name__} import *", names)

    assert set(names) - {"__builtins__"} == set(module.__all__)


@EACH_FACADE
def test_every_public_name_has_a_docstring(module: ModuleType):
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
            assert (value.__doc__ or "").strip(), name


@EACH_FACADE
def test_every_public_method_has_a_docstring(module: ModuleType):
    values = [getattr(module, name) for name in module.__all__]
    classes = [value for value in values if inspect.isclass(value)]
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


STATE = (
    "close exclude explain get_state keep_ledger load load_state_dict monitor provenance report "
    "save set_state start_prefetch state_dict stats trace"
)
STEPS = (
    "apply batch explain filter map map_with_index monitor parents pipe preview random_map report "
    "seed trace"
)
UNEQUAL = "bucket_by_length enumerate pad_batch skip take unbatch"
MEMBERS = {
    gristmill.DataLoader: (
        "at close epoch epochs explain from_position from_step map monitor multiprocessing_options "
        "preview read_options report trace stats steps_of"
    ),
    gristmill.DataLoaderIterator: f"{STATE} origins skipped",
    gristmill.DatasetIterator: f"{STATE} skipped",
    gristmill.FeedIterator: f"{STATE} origins skipped",
    gristmill.IterDataset: (
        f"{STEPS} {UNEQUAL} at from_step mp_prefetch prefetch repeat scan shuffle steps_of window"
    ),
    gristmill.MapDataset: (
        f"{STEPS} {UNEQUAL} cache k_fold repeat sample shuffle slice split to_iter_dataset"
    ),
    experimental.DatasetOptions: """
        execution_tracking_mode filter_raise_threshold_ratio filter_warn_threshold_ratio merge
        min_shm_size num_bookmarks
    """,
    experimental.RngPool: "acquire_rng release_rng",
    experimental.ThreadPrefetchDatasetIterator: f"{STATE} skipped stats",
}


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_a_class_has_the_public_members_that_are_listed_and_no_others(kind: type):
    assert _members(kind) == set(MEMBERS[kind].split())


DATASETS = [
    kind
    for name in experimental.__all__
    if inspect.isclass(kind := getattr(experimental, name))
    and issubclass(kind, gristmill.MapDataset | gristmill.IterDataset)
]


@pytest.mark.parametrize("kind", DATASETS, ids=lambda kind: kind.__name__)
def test_an_experimental_dataset_adds_only_the_members_that_grain_has(kind: type):
    base = gristmill.MapDataset if issubclass(kind, gristmill.MapDataset) else gristmill.IterDataset
    added = {
        experimental.ElasticIterator: {  # some of them as in its head
            *("close", "get_state", "set_state"),
            *("get_shard_states", "set_shard_states", "shard_options"),
            *("state_dict", "load_state_dict"),
        },
        experimental.InterleaveIterDataset: {"set_slice"},
        experimental.ParquetIterDataset: {"set_slice"},
    }

    assert _members(kind) - _members(base) == added.get(kind, set())


def test_objects_have_no_public_attributes_beside_those_of_their_class():
    stream = gristmill.MapDataset.range(4).map(str).to_iter_dataset()
    loader = gristmill.load(range(4))

    for each in (loader, iter(loader), stream.parents[0], stream, iter(stream)):
        assert [name for name in vars(each) if not name.startswith("_")] == []


def _members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_docstring_examples_are_found_by_pytest():
    """Modules below are collected with `--doctest-modules`: each must import on its own."""
    for found in pkgutil.walk_packages(gristmill.__path__, "gristmill."):
        if found.name not in ("gristmill.__main__", "gristmill._demo.train"):  # runs; needs jax
            assert (importlib.import_module(found.name).__doc__ or "").strip(), found.name


def test_the_version_is_that_of_the_package():
    assert gristmill.__version__ == importlib.metadata.version("gristmill")


def test_windows_fails_at_import_with_one_sentence_that_names_what_is_supported():
    code = "import sys, numpy; sys.platform = 'win32'; import gristmill"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = ended.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: gristmill runs on Linux and macOS, not on Windows. Use it in WSL 2."
    )
