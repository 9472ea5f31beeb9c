"""`gristmill state`: describe the states in a file or a checkpoint, and compare two of them."""

import argparse
import datetime
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gristmill._api.dataset.iterator import StreamIterator
from gristmill._api.loader.iterator import DataLoaderIterator
from gristmill._api.loader.loader import DataLoader
from gristmill._checkpoint.excluded_records import excluded_in
from gristmill._checkpoint.grain_state import describe_grain_state
from gristmill._cli.pipelines import PIPELINE_HELP, import_pipeline
from gristmill._cli.state_files import find_states, read_state_file
from gristmill._plan.source_positions import source_positions
from gristmill._printable import printable
from gristmill.errors import StateError
from gristmill.types import JsonObject

_MAX_LISTED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `state` to its parser."""
    parser.description = (
        "Describe the state of an iterator: in a file, or in the folder of a checkpoint, such as "
        "one of Orbax. With two paths, show the difference."
    )
    parser.add_argument("path", metavar="PATH", help="a file with a state, or a checkpoint")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="another one, to compare with")
    parser.add_argument(
        "--pipeline", metavar="PIPELINE", help=f"check whether it restores into {PIPELINE_HELP}"
    )
    parser.set_defaults(run=_run, flags={"pipeline": "--pipeline"})


def _run(arguments: argparse.Namespace) -> int:
    states = list(find_states(Path(arguments.path)))
    if arguments.other is not None:
        path, body = states[-1]
        *_, (other_path, other) = find_states(Path(arguments.other))
        _print([f"{path} -> {other_path}", *_differences(body, other)])
    else:
        for path, body in states:
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime).astimezone()
            age = datetime.datetime.now().astimezone() - written
            shown = datetime.timedelta(seconds=round(age.total_seconds()))
            _print([f"{path}", f"  written: {written:%Y-%m-%d %H:%M:%S %z}, {shown} ago"])
            _print([f"  {name}: {value}" for name, value in describe_state(body).items()])
    if arguments.pipeline is None:
        return 0
    return _check_pipeline(arguments.pipeline, *states[-1])


def _print(lines: list[str]) -> None:
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def describe_state(body: Mapping[str, Any]) -> dict[str, str]:
    """Return a description of each field of a state, by name.

    Raises:
        StateError: A field has another form.
    """
    try:
        if "gristmill" not in body:
            return describe_grain_state(dict(body))
        return _describe_fields(body)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise StateError(
            "The state is corrupt: some fields are missing or wrong. Use an earlier checkpoint."
        ) from None


def _describe_fields(body: Mapping[str, Any]) -> dict[str, str]:
    shown: dict[str, str] = {}
    if "cursors" in body:
        packed = body["cursors"]
        cursors: list[Any] = packed.get("cursors", [packed.get("each")])
        shown["shard"] = f"all {packed['shards']} shards"
        shown["position"] = "; ".join(_describe_cursor(cursor) for cursor in cursors)
    else:
        index, count = body["shard"]
        shown["shard"] = f"{index} of {count}"
        shown["position"] = _describe_cursor(body["cursor"])
    epoch = _epoch_of(body)
    if epoch is not None:
        shown["epoch"] = epoch
    if body.get("taken"):
        counts = [packed["shards"] for packed in body["taken"]]
        shown["earlier runs"] = f"with {', '.join(map(str, counts))} shards"
    shown |= _describe_plan(body)
    skips = _flatten(body.get("skipped", []))
    shown["skipped"] = f"{len(skips)} records"
    for skip in skips[:_MAX_LISTED]:
        shown[f"skipped at position {skip['position']}"] = (
            f"record {skip['record']} in {skip['step']}: {skip['error']}"
        )
    for number, found in sorted(excluded_in(body).items()):
        records = sorted(found)
        listed = ", ".join(map(str, records[:_MAX_LISTED]))
        more = ", ..." if len(records) > _MAX_LISTED else ""
        name = f"excluded from source {number}" if number else "excluded"
        shown[name] = f"{len(records)} records: {listed}{more}"
    shown["format"] = f"version {body['gristmill']}"
    shown["library"] = f"gristmill {body.get('library', 'of an earlier version')}"
    return shown


def _epoch_of(body: Mapping[str, Any]) -> str | None:
    """Return the epoch of the next record, if the order of the records is that of a sampler."""
    if "epoch" in body:
        return f"only epoch {body['epoch']}"
    order: list[object] = body.get("order") or [""]
    size = re.search(r"\bnum_records=(\d+)", str(order[0]))
    if size is None or "cursor" not in body or body.get("taken") or not int(size[1]):
        return None
    position: object = body["cursor"][0]
    index, count = body["shard"]
    if type(position) is not int:
        return None
    epoch, number = divmod(position * count + index, int(size[1]))
    return f"{epoch}, record {number} of {size[1]}"


def _flatten(skips: list[Any]) -> list[JsonObject]:
    """Return the skipped records of all shards."""
    if skips and isinstance(skips[0], list):
        return [skip for some in cast("list[list[JsonObject]]", skips) for skip in some]
    return skips


def _describe_cursor(cursor: list[Any]) -> str:
    first, *outputs = cursor
    if not isinstance(first, int):
        return f"state {json.dumps(cursor)}"
    after = [f", {number} outputs of flat map {level}" for level, number in enumerate(outputs)]
    return f"{first} records read{''.join(after)}"


def _describe_plan(description: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the source and the steps of a pipeline, or those of each of its datasets."""
    shown: dict[str, str] = {}
    source = description.get("source")
    if isinstance(source, dict):
        for name, below in cast("dict[str, Mapping[str, Any]]", source).items():
            shown |= _describe_plan(below, f"{prefix}dataset {name} ")
    else:
        shown[f"{prefix}source"] = str(source)
    steps = description.get("steps", [])
    shown[f"{prefix}steps"] = " > ".join(map(str, steps)) or "none"
    return shown


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    one, other = describe_state(first), describe_state(second)
    lines: list[str] = []
    for name in [*one, *(name for name in other if name not in one)]:
        before, after = one.get(name, "nothing"), other.get(name, "nothing")
        if before != after:
            lines.append(f"  {name}: {before} -> {after}")
    return lines or ["  no difference"]


def _check_pipeline(name: str, path: Path, body: Mapping[str, Any]) -> int:
    """Print whether a state restores into a pipeline, and return the exit status."""
    pipeline = import_pipeline(name)
    loader: Any = pipeline
    if isinstance(pipeline, DataLoader) and "epoch" in body:
        loader = pipeline.epoch(body["epoch"])
    content = read_state_file(path)
    state: Any = content if isinstance(pipeline, DataLoader) else json.loads(content)
    with iter(loader) as iterator:
        try:
            iterator.set_state(state)
        except Exception as error:  # an iterator of the user's own may raise anything
            reason = str(error) if isinstance(error, StateError) else repr(error)
            _print([f"{path} does not restore into {name}: {reason}"])
            return 1
        if isinstance(iterator, DataLoaderIterator | StreamIterator):
            run = cast(Any, iterator)._run  # noqa: SLF001 - of our own iterator
            found = source_positions(run.plan, run.stream.cursor)
            _print([f"  position in {position}" for position in found])
    _print([f"{path} restores into {name}."])
    return 0
