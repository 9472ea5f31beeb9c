"""Datasets and iterators of a user's own classes, alone and below the steps of the library."""

import json
from typing import Any

import grain
import numpy as np
from grain._src.core import sharding as typed_sharding
from grain._src.python.dataset import stats as typed_stats

dataset_stats: Any = typed_stats
sharding: Any = typed_sharding


class CharacterIterator(grain.DatasetIterator[Any]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._position = 0

    def __next__(self) -> str:
        if self._position >= len(self._text):
            raise StopIteration
        self._position += 1
        return self._text[self._position - 1]

    def get_state(self) -> Any:
        return {"position": self._position}

    def set_state(self, state: Any) -> None:
        self._position = state["position"]


class Characters(grain.IterDataset[Any]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def __iter__(self) -> Any:
        return CharacterIterator(self._text)


class SkippingIterator(grain.DatasetIterator[Any]):
    def __init__(self, parent: Any, count: int) -> None:
        super().__init__(parent)
        self._count = count

    @dataset_stats.record_next_duration_if_output
    @dataset_stats.trace_input_pipeline_next(stage_category=dataset_stats.IPL_CAT_READ)
    def __next__(self) -> Any:
        stats: Any = self._stats
        timer = dataset_stats.Timer()
        with timer:
            for _ in range(self._count):
                next(self._parent)
            element = next(self._parent)
        with stats.record_self_time(offset_ns=timer.value()):
            return stats.record_output_spec(element)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)


class Skipping(grain.IterDataset[Any]):
    def __init__(self, parent: Any, count: int) -> None:
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> Any:
        return SkippingIterator(self._parent.__iter__(), self._count)


class Pairs(grain.MapDataset[Any]):
    def __init__(self, left: Any, right: Any) -> None:
        super().__init__([left, right])

    def __len__(self) -> int:
        return min(len(parent) for parent in self._parents)

    def __getitem__(self, index: Any) -> Any:
        stats: Any = self._stats
        with stats.record_self_time():
            left, right = self._parents
        return left[index], right[index]


class ShardSampler:
    """The records of one shard, twice, backwards. Its end is an `IndexError`."""

    def __init__(self, num_records: int, shard_options: Any) -> None:
        self._records = range(*sharding.even_split(num_records, shard_options))
        self._shard_options = shard_options

    def __getitem__(self, index: Any) -> Any:
        if index >= 2 * len(self._records):
            raise IndexError(index)
        position = index % len(self._records)
        return grain.RecordMetadata(index=index, record_key=self._records[-1 - position])

    def __repr__(self) -> str:
        return f"ShardSampler({self._records})"


class ManySource:
    """A source that reads many records in one call."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: Any) -> Any:
        return np.full(2, index)

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def plain(value: Any) -> Any:
    """Return elements as JSON has them, with their types."""
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    return [type(value).__name__, value if isinstance(value, str) else int(value)]


def resumed(ds: Any, num_before: int) -> list[Any]:
    """Return the elements after a state, from an iterator that was restored from it."""
    iterator = ds.__iter__()
    for _ in range(num_before):
        next(iterator)
    restored = ds.__iter__()
    restored.set_state(json.loads(json.dumps(iterator.get_state())))
    return list(restored)


if __name__ == "__main__":
    text = Characters("hello world, this is a stream")
    numbers: Any = grain.MapDataset.range(60)
    shuffled = numbers.seed(1).shuffle().to_iter_dataset()
    twice = Skipping(Skipping(shuffled, 1).map(lambda x: x + 1), 1).batch(2)
    shard = sharding.ShardOptions(1, 3)
    source: Any = range(10)
    loader = grain.DataLoader(
        data_source=source,
        sampler=ShardSampler(10, shard),
        shard_options=sharding.NoSharding(),
    )
    pairs = Pairs(grain.MapDataset.range(5).map(lambda x: x * 2), grain.MapDataset.range(10, 20))
    found = {
        "stream": list(text),
        "steps above": list(text.map(str.upper).filter(str.isalpha).batch(4)),
        "resumed stream": resumed(text.map(str.upper).batch(3), 2),
        "skipping": list(Skipping(numbers.to_iter_dataset(), 2)),
        "skipping twice": list(twice),
        "resumed skipping": resumed(twice, 3),
        "shard": list(loader),
        "pairs": list(pairs),
        "pairs below": list(pairs.seed(1).shuffle().repeat(2).to_iter_dataset().batch(2)),
        "many": list(grain.MapDataset.source(ManySource()).batch(2).to_iter_dataset()),
    }
    print(json.dumps({name: plain(elements) for name, elements in found.items()}))
