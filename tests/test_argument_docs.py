"""All arguments of every public class and function are documented."""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.public_modules import PUBLIC_MODULES

KNOWN_FROM_ELSEWHERE = {
    "gristmill.InMemoryDataSource.count": "of `Sequence`",
    "gristmill.InMemoryDataSource.index": "of `Sequence`",
    "gristmill.experimental.BestFitPackIterDataset": "those of `FirstFitPackIterDataset`",
    "gristmill.Operation": "a type",
    "gristmill.Preview": "made by `preview`",
    "gristmill.Statistics": "made by `statistics`",
    "gristmill.RandomAccessDataSource": "a protocol",
    "gristmill.Sampler": "a protocol",
    "gristmill.transforms.SupportsMapBatch": "a protocol",
    "gristmill.experimental.ShapeDtypeStructProtocol": "a protocol",
    "gristmill.experimental.BOSHandling": "an enum",
    "gristmill.experimental.ExecutionTrackingMode": "an enum",
    "gristmill.monitoring.Units": "an enum",
    "gristmill.types.Element": "an alias",
    "gristmill.types.SupportsArray": "a protocol",
    "gristmill.types.SupportsCollate": "a protocol",
    "gristmill.types.SupportsGetItems": "a protocol",
}


def public_callables() -> Iterator[Any]:
    seen: set[int] = set()
    for module in sorted(set(PUBLIC_MODULES) - {"gristmill.testing"}):  # fixtures are its arguments
        facade = importlib.import_module(module)
        for name in facade.__all__:
            found = getattr(facade, name)
            if inspect.ismodule(found) or id(found) in seen or not callable(found):
                continue
            seen.add(id(found))
            yield pytest.param(found, id=f"{module}.{name}")
            if inspect.isclass(found):
                for method in dir(found):  # also those of internal bases
                    value = inspect.getattr_static(found, method)
                    function = getattr(value, "__func__", value)
                    if method.startswith("_") or not inspect.isfunction(function):
                        continue
                    if function.__module__.startswith("gristmill") and id(function) not in seen:
                        seen.add(id(function))
                        yield pytest.param(function, id=f"{module}.{name}.{method}")


def documentation_of(found: Any) -> str:
    """Return the docstring, and those of what it is derived from or overrides."""
    if inspect.isclass(found):
        bases = [base for base in found.__mro__[:-1] if base.__module__.startswith("gristmill")]
        texts = [base.__doc__ or "" for base in bases]
        return "\n".join([*texts, found.__init__.__doc__ or ""])
    return found.__doc__ or ""


def undocumented(found: Any) -> list[str]:
    try:
        parameters = list(inspect.signature(found).parameters)
    except (ValueError, TypeError):
        return []
    fields: dict[str, Any] = {}
    if inspect.isclass(found) and "Args:" not in documentation_of(found):
        fields = inspect.get_annotations(found)  # of what users receive: documented one by one
    documented = documentation_of(found)
    return [
        name
        for name in parameters
        if name not in ("self", "cls")
        and not name.startswith("_")
        and name not in fields
        and not re.search(rf"^\s*\*{{0,2}}{re.escape(name)}:", documented, re.MULTILINE)
    ]


@pytest.mark.parametrize("found", list(public_callables()))
def test_every_argument_is_documented(found: Any, request: pytest.FixtureRequest):
    name = request.node.callspec.id
    if not inspect.isclass(found) and not documentation_of(found):
        return  # the docstring is that of the method it overrides
    if name in KNOWN_FROM_ELSEWHERE:
        assert undocumented(found), "it is documented by now: remove it from the table"
        return
    assert undocumented(found) == []
