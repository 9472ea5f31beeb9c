"""Grain's names: importable from the same places, the same objects, called the same way."""

import __future__

import importlib
import inspect
import pkgutil
import re
import types
from typing import Any

import grain
import pytest

import gristmill

MODULES = [
    "",
    "monitoring",
    *sorted(
        module.name.removeprefix("grain.")
        for module in pkgutil.walk_packages(grain.__path__, "grain.")
        if not module.name.startswith(("grain._src", "grain.proto"))
    ),
]
"""The public modules of the installed Grain; "" is the package itself."""

LEFT_OUT = {
    ("monitoring", "fast_monitoring"): "a C++ module inside Google, always `None` outside",
}


def module_of(package: str, module: str) -> types.ModuleType:
    if (package, module) == ("grain", "monitoring"):
        return grain.monitoring  # a name of the package, and not a module that can be imported
    return importlib.import_module(f"{package}.{module}" if module else package)


def find(package: str, module: str, name: str) -> Any:
    return getattr(module_of(package, module), name)


def names_of(module: str) -> list[str]:
    """Return the public names of a module of the installed Grain."""
    found = module_of("grain", module)
    return sorted(
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and is_public(value) and (module, name) not in LEFT_OUT
    )


def is_public(value: object) -> bool:
    """Return whether a value is not only imported for the module's own use."""
    if isinstance(value, types.ModuleType):
        return value.__name__.removeprefix("grain.") in MODULES or value is grain.monitoring
    return not isinstance(value, __future__._Feature)


IN_GRAIN = [(module, name) for module in MODULES for name in names_of(module)]


@pytest.mark.parametrize(("module", "name"), IN_GRAIN)
def test_each_public_name_of_grain_is_one_of_ours(module, name):
    assert hasattr(module_of("gristmill", module), name)


MEMBERS_LEFT_OUT = {
    "format": "of the standard library's `ShareableList`, which Grain's source happens to extend",
}


@pytest.mark.parametrize(("module", "name"), IN_GRAIN)
def test_each_public_member_of_a_class_of_grain_is_one_of_ours(module, name):
    grains = find("grain", module, name)
    if inspect.isclass(grains):
        members = {member for member in dir(grains) if not member.startswith("_")}
        assert members - MEMBERS_LEFT_OUT.keys() <= set(dir(find("gristmill", module, name)))


def test_what_is_left_out_is_in_grain():
    for place in LEFT_OUT:
        find("grain", *place)


def test_names_that_are_one_object_in_grain_are_one_object_in_gristmill():
    for one in IN_GRAIN:
        for other in IN_GRAIN:
            if find("grain", *one) is find("grain", *other):
                assert find("gristmill", *one) is find("gristmill", *other), (one, other)


def test_the_flat_map_transform_is_the_flat_map_of_transforms():
    assert gristmill.transforms.FlatMap is gristmill.experimental.FlatMapTransform


def test_a_submodule_is_reached_from_the_package_without_an_import_of_its_own():
    for module in [
        "checkpoint",
        "constants",
        "experimental",
        "samplers",
        "sharding",
        "sources",
        "transforms",
    ]:
        assert getattr(gristmill, module) is module_of("gristmill", module)


def test_the_spelling_that_tutorials_use_reaches_sharding_from_python():
    # `import grain.python as grain` and then `grain.sharding.NoSharding()`.
    assert module_of("gristmill", "python").sharding is gristmill.sharding


@pytest.mark.parametrize("name", names_of("constants"))
def test_a_constant_has_grains_value(name):
    ours, grains = find("gristmill", "constants", name), find("grain", "constants", name)
    assert ours == grains
    assert type(ours) is type(grains)


# Calls


def same_call(ours: inspect.Signature, grains: inspect.Signature) -> None:
    """Every call that fits Grain's signature fits ours; ours may add keywords with defaults."""
    for position, (name, parameter) in enumerate(grains.parameters.items()):
        assert name in ours.parameters, f"no {name!r} in {ours}"
        own = ours.parameters[name]
        assert own.kind is parameter.kind, f"{name!r} is {own.kind}, not {parameter.kind}"
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            assert list(ours.parameters).index(name) == position, f"{name!r} has moved"
        # Grain's ShapeDtypeStruct has its protocol's properties for defaults, by oversight.
        if parameter.default is not parameter.empty and not isinstance(parameter.default, property):
            assert repr(own.default) == repr(parameter.default), name
    for name in ours.parameters.keys() - grains.parameters.keys():
        added = ours.parameters[name]
        assert added.kind is added.KEYWORD_ONLY, f"{name!r} is added, and not keyword-only"
        assert added.default is not added.empty, f"{name!r} is added, and has no default"


def is_protocol(thing: object) -> bool:
    return bool(getattr(thing, "_is_protocol", False))


CALLABLE = [
    place
    for place in IN_GRAIN
    if (inspect.isclass(find("grain", *place)) or inspect.isfunction(find("grain", *place)))
    and not is_protocol(find("grain", *place))
]
METHODS = [
    (module, name, method)
    for module, name in CALLABLE
    if inspect.isclass(find("grain", module, name))
    for method, value in vars(find("grain", module, name)).items()
    if inspect.isfunction(value)
    and (not method.startswith("_") or method in ("__getitem__", "__iter__", "__next__", "__len__"))
]


@pytest.mark.parametrize(("module", "name"), CALLABLE)
def test_a_class_or_function_is_called_as_grains(module, name):
    same_call(
        inspect.signature(find("gristmill", module, name)),
        inspect.signature(find("grain", module, name)),
    )


@pytest.mark.parametrize(("module", "name", "method"), METHODS)
def test_a_method_is_called_as_grains(module, name, method):
    own = getattr(find("gristmill", module, name), method)
    same_call(
        _with_names(own),
        inspect.signature(getattr(find("grain", module, name), method)),
    )


def _with_names(function):
    """Return a signature. Methods that users define take their arguments by position only.

    So type checkers accept any names of the arguments in a user's class.
    """
    signature = inspect.signature(function)
    if not getattr(function, "__isabstractmethod__", False):
        return signature
    parameters = [
        one.replace(kind=one.POSITIONAL_OR_KEYWORD) if one.kind is one.POSITIONAL_ONLY else one
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


ABSTRACT = [
    place
    for place in IN_GRAIN
    if inspect.isclass(find("grain", *place)) and inspect.isabstract(find("grain", *place))
]


@pytest.mark.parametrize(("module", "name"), ABSTRACT)
def test_a_transform_asks_for_the_methods_that_grains_asks_for(module, name):
    ours, grains = find("gristmill", module, name), find("grain", module, name)
    assert ours.__abstractmethods__ == grains.__abstractmethods__
    with pytest.raises(TypeError, match=min(grains.__abstractmethods__)):
        ours()


# Values that users print, compare and pass on


VALUES = {
    "ShardOptions": lambda api: api.ShardOptions(1, 3, drop_remainder=True),
    "NoSharding": lambda api: api.NoSharding(),
    "ShardByJaxProcess": lambda api: api.ShardByJaxProcess(drop_remainder=True),
    "ReadOptions": lambda api: api.ReadOptions(),
    "ReadOptions given": lambda api: api.ReadOptions(num_threads=2, prefetch_buffer_size=7),
    "MultiprocessingOptions": lambda api: api.MultiprocessingOptions(num_workers=3),
    "Batch": lambda api: api.Batch(4, drop_remainder=True),
    "RecordMetadata": lambda api: api.RecordMetadata(3, record_key=5),
    "Record": lambda api: api.Record(api.RecordMetadata(3), {"a": 1}),
    "RangeDataSource": lambda api: api.RangeDataSource(1, 10, 2),
    "IndexSampler": lambda api: api.IndexSampler(5, shuffle=True, num_epochs=2, seed=1),
    "SequentialSampler": lambda api: api.SequentialSampler(5, seed=1),
}
PACKAGES = ("gristmill", "grain")
BY_VALUE = [name for name in VALUES if not name.endswith(("Source", "Sampler"))]


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"Record"}))
def test_a_value_prints_as_grains(name):
    ours, grains = (VALUES[name](module_of(package, "python")) for package in PACKAGES)
    assert repr(ours) == repr(grains)
    assert str(ours) == str(grains)


def test_a_record_prints_as_grains_but_without_its_data():
    ours, grains = (VALUES["Record"](module_of(package, "python")) for package in PACKAGES)
    assert repr(ours) == repr(grains).replace("{'a': 1}", "<dict>")


@pytest.mark.parametrize("name", BY_VALUE)
def test_two_values_of_equal_parts_are_equal_as_grains(name):
    for package in ("grain", "gristmill"):
        api = module_of(package, "python")
        assert VALUES[name](api) == VALUES[name](api)


def test_a_shared_memory_source_prints_as_grains():
    printed = []
    for package in ("grain", "gristmill"):
        source = module_of(package, "python").InMemoryDataSource(range(5))
        printed.append(re.sub(r"name=[^,]+", "name=...", str(source)))
        source.close()
        source.unlink()
    assert printed[1] == printed[0] == "InMemoryDataSource(name=..., len=5)"


def test_metadata_lose_their_record_key_as_grains():
    for package in ("grain", "gristmill"):
        metadata = module_of(package, "python").RecordMetadata(3, record_key=5)
        assert metadata.remove_record_key() == type(metadata)(3)
        assert metadata.record_key == 5
        without = type(metadata)(3)
        assert without.remove_record_key() is without


def test_no_sharding_and_sharding_by_process_are_shard_options_as_in_grain():
    for package in (grain, gristmill):
        sharding = package.sharding
        assert issubclass(sharding.NoSharding, sharding.ShardOptions)
        assert issubclass(sharding.ShardByJaxProcess, sharding.ShardOptions)
        here = sharding.ShardByJaxProcess()
        assert (here.shard_index, here.shard_count, here.drop_remainder) == (0, 1, False)


@pytest.mark.parametrize("source", [range(3), [1, 2], (1,), "text", {1: 2}, 5])
def test_what_grain_takes_for_a_source_ours_does(source):
    answers = [
        isinstance(source, find(package, "sources", "RandomAccessDataSource"))
        for package in ("grain", "gristmill")
    ]
    assert answers[0] == answers[1]
