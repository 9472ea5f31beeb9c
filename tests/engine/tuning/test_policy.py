"""The policy has a reason for each of its fields, and `docs/tuning.md` lists them."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from gristmill._engine.tuning import policy as _policy
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

PAGE = Path(__file__).parents[3] / "docs" / "tuning.md"


def documented_fields() -> dict[str, tuple[str, str]]:
    """Return the default of each field as written, and its docstring on one line."""
    tree = ast.parse(inspect.getsource(_policy))
    (definition,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    fields: dict[str, tuple[str, str]] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), f"{field.target.id} has no docstring"
            assert isinstance(text.value, ast.Constant), f"{field.target.id} has no docstring"
            assert field.value is not None
            reason = " ".join(str(text.value.value).split())
            fields[field.target.id] = ast.unparse(field.value), reason
    return fields


def rows_of_page() -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.M)
    assert len(rows) == len({name for name, _, _ in rows}), "a field is listed twice"
    return {name: (default, reason) for name, default, reason in rows}


def test_every_field_has_a_docstring():
    assert list(documented_fields()) == [one.name for one in dataclasses.fields(TuningPolicy)]


def test_the_page_lists_every_field_with_its_default_and_reason():
    assert rows_of_page() == documented_fields()


def test_the_page_lists_the_fields_in_their_order():
    assert list(rows_of_page()) == list(documented_fields())


def test_policies_are_immutable_and_compare_by_value():
    assert TuningPolicy() == DEFAULT_POLICY
    assert TuningPolicy(busy_share=0.0) != DEFAULT_POLICY
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_POLICY.busy_share = 0.0  # pyright: ignore[reportAttributeAccessIssue]
