"""Errors for a state that belongs to another pipeline or shard."""

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from gristmill.errors import StateError
from gristmill.types import JsonObject

logger = logging.getLogger("gristmill")

Description: TypeAlias = Mapping[str, Any]
"""What a plan reads and does: its source, order and steps, as JSON."""

_GATHER = (
    "For another number of shards, gather the states of all of them with "
    "`gristmill.checkpoint.gather_states`, and restore the result."
)


def compare_descriptions(there: Description, here: Description, within: str = "") -> None:
    """Raise a `StateError` that names the first difference between two descriptions of plans."""
    sources = there.get("source"), here["source"]
    if isinstance(sources[0], dict) and isinstance(sources[1], dict):
        one, other = cast("tuple[JsonObject, JsonObject]", sources)
        steps = [*there.get("steps", ())], [*here["steps"]]
        if _is_mix(steps[0]) and _is_mix(steps[1]):
            # Datasets may be added and removed, and weights may change.
            if steps[0][0] != steps[1][0] or one.keys() != other.keys():
                _report_change(steps[0][0], steps[1][0], within)
            other = {name: description for name, description in other.items() if name in one}
            there = {**there, "steps": ["Mix", *steps[0][1:]]}
            here = {**here, "steps": ["Mix", *steps[1][1:]]}
        elif one.keys() != other.keys():
            raise _difference("source", list(one), list(other), within)
        for name, description in other.items():
            compare_descriptions(one[name], description, f" in dataset {name}")
    elif sources[0] != sources[1]:
        raise _difference("source", *sources, within)
    for name in ("order", "steps"):
        if there.get(name) != here[name]:
            raise _difference(name, there.get(name), here[name], within)


def _is_mix(steps: list[str]) -> bool:
    return bool(steps) and (steps[0] == "Mix" or steps[0].startswith("Mix("))


def _report_change(there: str, here: str, within: str) -> None:
    logger.info(
        "The state was taken with other datasets or weights%s, %s there and %s here: each dataset "
        "of a mix of streams continues where it was, and a mix of a `MapDataset` at its index.",
        within,
        there,
        here,
    )


def _difference(name: str, there: object, here: object, within: str) -> StateError:
    what = {"source": "another source", "order": "another order", "steps": "other steps"}[name]
    old, new = _as_text(there), _as_text(here)
    remedy = "Restore it into a pipeline like the one it was taken from, or start again."
    if name == "order" and ("Shard" in old) != ("Shard" in new):
        remedy = "Shard the pipeline at the same step, with `ds[0::1]` if there is only one."
    return StateError(f"The state belongs to {what}{within}: {old} there, {new} here. {remedy}")


def _as_text(value: object) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return f"[{', '.join(map(str, items))}]"
    return str(value)


def check_shard(there: tuple[int, int], here: tuple[int, int]) -> None:
    """Raise a `StateError` if a state belongs to another shard."""
    if there != here:
        raise StateError(
            f"The state belongs to another shard: {there[0]} of {there[1]} there, {here[0]} of "
            f"{here[1]} here. {_GATHER}"
        )
