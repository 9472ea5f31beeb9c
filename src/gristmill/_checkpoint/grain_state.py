"""States that Grain wrote: the position they describe, or why only Grain can resume there.

Without workers, the state of Grain's `DataLoader` holds the index of the last record in the
sampler's stream. With flat maps, it holds for each of them the index of the element that is being
split and the number of outputs that were yielded:

    {"version": 2, "worker_count": 0, "last_worker_index": -1, "last_seen_indices": {"0": 7},
     "sampler": "IndexSampler(...)", "data_source": "<class 'list'>"}

    {"parent": {"next_index": 7}, "next_index_in_buffer": 2}
"""

import json
import re
from dataclasses import dataclass
from typing import cast, final

import numpy as np

from gristmill._data.sampling.samplers import IndexSampler
from gristmill._data.sources.memory.array import ArraySource
from gristmill.errors import StateError
from gristmill.types import JsonObject

_VERSION = 2  # the only one that Grain 0.2 writes and reads

_OF_LOADERS = frozenset({"last_seen_indices", "worker_count"})
_OF_DATASETS = frozenset(
    {
        "next_index",
        "parent",
        "parents",
        "parent_state",
        "parent_window_start_state",
        "iterators_in_use_states",
        "global_next_index",
        "reader_offset",
        "row_group",
    }
)
"""Each state of a dataset iterator of Grain has one of these fields, unless a user wrote it."""

_ADDRESS = re.compile(" at 0x[0-9a-f]+")

FINISH = "Finish the epoch with Grain and begin the next one here, or start again"
"""The remedy where only Grain can continue."""


@final
@dataclass(frozen=True)
class GrainPosition:
    """A position: after some records of the shard, and some outputs of the next element."""

    num_records: int
    outputs: tuple[int, ...] = ()
    """For each flat map, bottom up, the number of outputs of its element that were yielded."""


@final
@dataclass(frozen=True, kw_only=True)
class GrainStateReader:
    """Reads states of a Grain `DataLoader` with the same source, sampler, shard and flat maps."""

    sampler: object
    source: object
    shard: tuple[int, int]
    num_records: int
    """How many the shard has in all epochs."""
    num_flat_maps: int

    def position(self, state: object, *, validates: bool) -> GrainPosition | None:
        """Return the position in a state of Grain's `DataLoader`; `None` if it is not one.

        >>> loader = GrainStateReader(
        ...     sampler="in order", source=[], shard=(1, 4), num_records=20, num_flat_maps=0
        ... )
        >>> state = {"version": 2, "worker_count": 0, "last_seen_indices": {"0": 9}}
        >>> loader.position(state, validates=False)
        GrainPosition(num_records=3, outputs=())
        """
        body = _as_dict(state)
        try:
            if body.keys() >= _OF_LOADERS:
                return self._position_of_records(body, validates=validates)
            if self.num_flat_maps and body.keys() == {"parent", "next_index_in_buffer"}:
                return self._position_in_flat_maps(body)
            if self.num_flat_maps and "iterators_in_use_states" in body:
                raise _with_workers(len(body["iterators_in_use_states"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                "The state is one of Grain's, and corrupt: some fields are missing. Restore an "
                "earlier checkpoint."
            ) from None
        return None

    def _position_of_records(self, body: JsonObject, *, validates: bool) -> GrainPosition:
        if body["version"] != _VERSION:
            raise StateError(
                f"The state has version {body['version']} of Grain's `DataLoader`, but this "
                f"gristmill reads {_VERSION}. {FINISH}."
            )
        if _count(body["worker_count"]):
            raise _with_workers(body["worker_count"])
        if self.num_flat_maps:
            raise self._other_flat_maps(0)
        if validates:
            _compare("sampler", body["sampler"], repr(self.sampler))
            # A memmap is the same source here as the array that it maps.
            there = body["data_source"].replace("numpy.memmap", "numpy.ndarray")
            _compare("data source", there, _grain_repr(self.source))
        (last,) = body["last_seen_indices"].values()
        index, count = self.shard
        num_records, off = divmod(_count(last, minimum=-count) + count - index, count)
        if off or num_records < 0:
            raise StateError(
                f"The state belongs to another shard: its last index in the sampler is "
                f"{last}, which is not of shard {index} of {count}. Restore it into the same shard."
            )
        if validates:
            self._check_end(num_records)
            self._check_shuffle(num_records)
        return GrainPosition(num_records)

    def _check_end(self, num_records: int) -> None:
        """Refuse a position where Grain reads records of a smaller shard once more."""
        sampler = self.sampler
        if not isinstance(sampler, IndexSampler) or num_records <= self.num_records:
            return
        if sampler.num_records % sampler.shard_options.shard_count:
            raise StateError(
                f"The state is from Grain, after {num_records} records of a shard that has "
                f"{self.num_records} here: Grain reads records of a smaller shard again, and here "
                "the last epoch has ended. Start again."
            )

    def _check_shuffle(self, num_records: int) -> None:
        """Refuse a position within an epoch that Grain shuffles differently."""
        sampler = self.sampler
        if not (isinstance(sampler, IndexSampler) and sampler.shuffle):
            return
        index, count = self.shard
        own_count = sampler.shard_options.shard_count
        size = sampler.epoch_size
        if not size:
            return
        has_begun = (num_records * count + index) // own_count % size >= count // own_count
        if has_begun and is_shuffled_differently(size):
            raise StateError(
                f"The state is from Grain, within an epoch of {size} records. Grain's shuffle "
                "yields one of them twice and another never; here each comes once, in another "
                f"order. {FINISH}."
            )

    def _position_in_flat_maps(self, body: JsonObject) -> GrainPosition:
        outputs: list[int] = []
        while "next_index_in_buffer" in body:
            outputs.append(_count(body["next_index_in_buffer"]))
            body = body["parent"]
        if len(outputs) != self.num_flat_maps or body.keys() != {"next_index"}:
            raise self._other_flat_maps(len(outputs))
        return GrainPosition(_count(body["next_index"]), tuple(outputs[::-1]))

    def _other_flat_maps(self, count: int) -> StateError:
        return StateError(
            f"The state is from Grain and belongs to other steps: {count} FlatMap there, "
            f"{self.num_flat_maps} here. Restore it into a loader like the one it was taken from."
        )


def as_dataset_state(state: object, *, is_users: bool) -> JsonObject | None:
    """Return a state of Grain's Dataset API as a dict; `None` if it is not one.

    >>> as_dataset_state({"next_index": 3}, is_users=False)
    {'next_index': 3}

    Args:
        state: Any state.
        is_users: Whether it may be a state of a user's own iterator, whose fields are not known.
    """
    body = _as_dict(state)
    if not body or "gristmill" in body or body.keys() >= _OF_LOADERS:
        return None
    return body if is_users or body.keys() & _OF_DATASETS else None


def is_grain_state(state: object) -> bool:
    """Return whether a state is one of Grain's loader or datasets.

    >>> is_grain_state({"next_index": 3}), is_grain_state({"gristmill": 1})
    (True, False)
    """
    body = _as_dict(state)
    return body.keys() >= _OF_LOADERS or as_dataset_state(body, is_users=False) is not None


def describe_grain_state(body: JsonObject) -> dict[str, str]:
    """Return the fields of a state of Grain, by name.

    >>> describe_grain_state({"parent": {"next_index": 7}})
    {'written by': "Grain's Dataset API", 'position': '{"parent": {"next_index": 7}}'}
    """
    if not body.keys() >= _OF_LOADERS:
        return {"written by": "Grain's Dataset API", "position": json.dumps(body)}
    shown = {
        "written by": f"Grain's DataLoader, version {body.get('version')}",
        "position": f"after the records {body['last_seen_indices']} of the sampler, by worker",
        "workers": str(body["worker_count"]),
    }
    names = {"sampler": "sampler", "data_source": "source"}
    return shown | {label: str(body[name]) for name, label in names.items() if name in body}


def not_a_gristmill_state(state: object) -> StateError:
    """Return the error for a state that gristmill did not write."""
    keys = set(cast("dict[object, object]", state)) if isinstance(state, dict) else set[object]()
    if keys >= _OF_LOADERS:
        return StateError(
            "The state is from Grain's `DataLoader`. Restore it into a `gristmill.DataLoader` of "
            "the same source, sampler, operations and shard."
        )
    if keys & _OF_DATASETS:
        return StateError(
            "The state is from Grain's Dataset API. Restore it into an iterator over a "
            "`gristmill.MapDataset` or `IterDataset` with the same steps."
        )
    return StateError("The state was not written by gristmill. Pass the result of `get_state`.")


def _as_dict(state: object) -> JsonObject:
    """Return a state as a dict, empty if it is not one: `decode_state` reports what is wrong."""
    if isinstance(state, bytes | bytearray | str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError):
            return {}
    return cast(JsonObject, state) if isinstance(state, dict) else {}


def is_shuffled_differently(size: int) -> bool:
    """Return whether Grain's cipher is one bit short: 2^k + 1 records, k even and at least 16.

    >>> [size for size in range(2, 100_000) if is_shuffled_differently(size)]
    [65537]
    """
    bits = (size - 1).bit_length() - 1
    return bits >= 16 and bits % 2 == 0 and size - 1 == 1 << bits


def _count(value: object, *, minimum: int = 0) -> int:
    if type(value) is not int or value < minimum:
        raise ValueError(value)
    return value


def _with_workers(count: int) -> StateError:
    return StateError(
        f"The state is from Grain with {count} workers. Each of them batched its own share of the "
        "records, and this stream has no such batches. A state that Grain writes with "
        f"`worker_count=0` restores. {FINISH}."
    )


def _grain_repr(source: object) -> str:
    """Return the description of a source in Grain's states."""
    if isinstance(source, ArraySource) and isinstance(source.arrays, np.ndarray):
        return str(np.ndarray)  # the user passed the bare array
    is_list = isinstance(cast(object, source), list | tuple)
    return str(source.__class__) if is_list else repr(source)


def _compare(what: str, there: str, here: str) -> None:
    """Refuse another `repr`, ignoring addresses in it, which change with each process."""
    if _ADDRESS.sub("", there) != _ADDRESS.sub("", here):
        raise StateError(
            f"The state is from Grain and belongs to another {what}: {there:.500} there, "
            f"{here:.500} here. Restore it into a loader like the one it was taken from, or pass "
            "`validate_state=False` to `DataLoaderIterator` if only the `repr` differs."
        )
