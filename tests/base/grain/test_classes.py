from gristmill._base.grain.classes import is_from_grain


def grain_class(name: str, module: str = "grain._src.core") -> type:
    return type(name, (), {"__module__": module})


def test_classes_of_grain_are_recognized_by_name():
    options = grain_class("ShardOptions")
    derived = type("Mine", (options,), {"__module__": "my_program"})

    assert is_from_grain(options(), "ShardOptions")
    assert is_from_grain(derived(), "ShardOptions")
    assert is_from_grain(derived, "ShardOptions")
    assert not is_from_grain(options(), "NoSharding")
    assert not is_from_grain(grain_class("ShardOptions", "granary")(), "ShardOptions")
    assert not is_from_grain(grain_class("ShardOptions", "gristmill.options")(), "ShardOptions")
