"""Which records an element was made of, for each kind of step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import (
    Batch,
    DataLoader,
    DatasetIterator,
    IndexSampler,
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    ShardOptions,
    SkipErrors,
    experimental,
    feed,
    load,
)
from gristmill._api.dataset.iterator import StreamIterator
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.batching.pad import PadBatch
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._plan.nodes.buckets import BucketNode, BucketStreamNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.steps import MapNode
from gristmill.checkpoint import gather_states
from gristmill.errors import PlanError, ProvenanceError
from gristmill.experimental import ConcatThenSplitIterDataset, FirstFitPackIterDataset
from gristmill.transforms import Unbatch

DOCUMENTS = [{"tokens": np.full(1 + i % 5, i + 1)} for i in range(40)]


def documents() -> Any:
    return MapDataset.source(DOCUMENTS).shuffle(seed=2).to_iter_dataset()


def indices(iterator: Any) -> list[int]:
    return [origin.index for origin in iterator.provenance().records]


def test_a_loader_names_index_epoch_position_and_seed():
    loader = load(range(100, 110), shuffle=True, seed=3, num_epochs=2, batch_size=4)
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(4)]

    origins = iterator.provenance().records

    assert [100 + origin.index for origin in origins] == batches[3].tolist()
    assert [origin.position for origin in origins] == [12, 13, 14, 15]
    assert {origin.epoch for origin in origins} == {1}
    assert [origin.seed for origin in origins] == [15, 16, 17, 18]
    assert origins[0].source == "range(100, 110)"


def test_a_loader_reads_no_record_for_provenance():
    class Counting(list[int]):
        num_read = 0

        def __getitem__(self, index: Any) -> Any:
            self.num_read += 1
            return super().__getitem__(index)

    source = Counting(range(20))
    iterator = iter(load(source, shuffle=True, seed=0, batch_size=2).map(np.negative))
    next(iterator)
    num_read = source.num_read

    iterator.provenance()

    assert source.num_read == num_read


def test_positions_of_a_shard_are_those_of_all_shards():
    shard = ShardOptions(1, 3)
    iterator = iter(load(range(30), num_epochs=1, batch_size=2, shard_options=shard))
    next(iterator)
    next(iterator)

    assert [origin.position for origin in iterator.provenance().records] == [7, 10]


def test_an_epoch_of_a_sharded_sampler_is_one_pass_over_the_shard():
    sampler = IndexSampler(10, ShardOptions(1, 2), shuffle=True, num_epochs=2, seed=0)
    iterator = iter(DataLoader(data_source=range(10), sampler=sampler))

    epochs = []
    for element in iterator:
        (origin,) = iterator.provenance().records
        assert origin.index == element
        epochs.append(origin.epoch)

    assert epochs == [0] * 5 + [1] * 5


def test_provenance_of_one_epoch_names_that_epoch():
    iterator = iter(load(range(6), shuffle=True, seed=0, batch_size=3).epoch(4))
    batch = next(iterator)

    origins = iterator.provenance().records

    assert [origin.index for origin in origins] == batch.tolist()
    assert {origin.epoch for origin in origins} == {4}


def test_before_the_first_element_there_is_nothing_to_name():
    iterator = iter(load(range(4), batch_size=2))

    with pytest.raises(ProvenanceError, match=r"no last element.*Call `next` before"):
        iterator.provenance()


def test_after_a_restore_there_is_nothing_to_name_until_the_next_element():
    iterator = iter(load(range(8), batch_size=2))
    next(iterator)
    state = iterator.get_state()
    next(iterator)
    iterator.set_state(state)

    with pytest.raises(ProvenanceError, match="no last element"):
        iterator.provenance()
    assert next(iterator).tolist() == indices(iterator)


def test_the_last_element_can_be_named_after_the_end():
    iterator = iter(load(range(5), num_epochs=1, batch_size=2))
    for _ in iterator:
        pass

    assert indices(iterator) == [4]


def test_skipped_records_are_not_named():
    def picky(x: int) -> int:
        if x % 4 == 1:
            raise ValueError(x)
        return x

    sampler = IndexSampler(20, num_epochs=1, seed=0)
    loader = DataLoader(
        data_source=range(20),
        sampler=sampler,
        operations=[picky, Batch(4)],
        on_error=SkipErrors(10),
    )
    iterator = iter(loader)

    for batch in iterator:
        assert indices(iterator) == batch.tolist()


def test_a_run_that_continues_other_shards_names_records():
    def loader(index: int, count: int) -> DataLoader:
        shard = ShardOptions(index, count)
        return load(range(40), shuffle=True, seed=1, num_epochs=1, shard_options=shard)

    iterators = [iter(loader(index, 3)) for index in range(3)]
    for iterator in iterators:
        for _ in range(4):
            next(iterator)
    resumed = iter(loader(1, 2))
    resumed.set_state(gather_states([iterator.get_state() for iterator in iterators]))

    for element in resumed:
        assert indices(resumed) == [element]


def test_worker_processes_make_no_difference():
    dataset = MapDataset.range(40).shuffle(seed=1).filter(_is_odd).to_iter_dataset().batch(3)
    inline, workers = iter(dataset), iter(dataset.mp_prefetch(MultiprocessingOptions(2)))

    with workers:
        for batch in workers:
            next(inline)
            assert workers.provenance() == inline.provenance()
            assert indices(workers) == batch.tolist()


def _is_odd(x: int) -> bool:
    return x % 2 == 1


def test_a_batch_with_padding_names_no_record_in_empty_rows():
    buckets = BucketByLength(
        [2, 5],
        batch_sizes=3,
        length="tokens",
        remainder="pad",
        pad=PadBatch(add_mask=True),
    )
    node = BucketStreamNode(site="here:1", parent=documents()._plan_node, buckets=buckets)
    iterator = StreamIterator(node, PoolKeeper())

    for batch in iterator:
        rows = iterator.provenance().rows
        named = [row[0].index + 1 if row else 0 for row in rows]
        assert named == batch["tokens"][:, 0].tolist()


def test_buckets_of_a_dataset_name_records_below_a_map():
    dataset = MapDataset.source(DOCUMENTS).shuffle(seed=1)
    lengths = [len(document["tokens"]) for document in DOCUMENTS]
    buckets = BucketByLength([2, 5], batch_sizes=3, length="tokens")
    batches = BucketNode(
        site="here:1",
        parent=dataset._plan_node,
        buckets=buckets,
        lengths=np.array(lengths, dtype=np.int64),
    )
    tokens = MapNode(
        site="here:2", parent=batches, name="tokens", function=lambda batch: batch["tokens"]
    )
    iterator = StreamIterator(AccessNode(site="here:3", parent=tokens), PoolKeeper())

    for batch in iterator:
        assert [index + 1 for index in indices(iterator)] == batch[:, 0].tolist()


def segments(row: Any) -> list[int]:
    return list(dict.fromkeys(token for token in row.tolist() if token))


@pytest.mark.parametrize("batch_size", [None, 2])
def test_packing_names_the_document_of_each_segment(batch_size: int | None):
    packed = FirstFitPackIterDataset(
        documents(), length_struct={"tokens": 8}, num_packing_bins=3, shuffle_bins=True, seed=4
    )
    iterator = iter(packed if batch_size is None else packed.batch(batch_size))

    for element in iterator:
        rows = [[origin.index + 1 for origin in row] for row in iterator.provenance().rows]
        assert rows == [segments(row) for row in np.atleast_2d(element["tokens"])]


def test_documents_that_are_split_are_named_in_both_rows():
    split = ConcatThenSplitIterDataset(documents(), length_struct={"tokens": 7})
    iterator = iter(split)
    named = []

    for element in iterator:
        assert [index + 1 for index in indices(iterator)] == segments(element["tokens"])
        named += indices(iterator)

    assert len(named) > len(set(named)) == len(DOCUMENTS)


@pytest.mark.parametrize(
    "then",
    [
        lambda rows: rows.filter(lambda row: row["tokens"][0] == 99 and row["tokens"][2] % 2),
        lambda rows: experimental.RebatchIterDataset(rows.batch(2), batch_size=3),
        lambda rows: rows.shuffle(buffer_size=4, seed=1).batch(2),
    ],
)
def test_documents_that_are_split_are_named_below_steps_that_need_their_values(then: Any):
    split = ConcatThenSplitIterDataset(
        documents(),
        length_struct={"tokens": 7},
        bos_handling=experimental.BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
        bos_token_id=99,
        bos_features=["tokens"],
    )
    iterator = iter(then(split))
    num_rows = 0

    for element in iterator:
        rows = [[origin.index + 1 for origin in row] for row in iterator.provenance().rows]
        tokens = np.atleast_2d(element["tokens"])
        assert len(rows) == len(tokens)
        for row, values in zip(rows, tokens, strict=True):
            assert values[0] == 99
            assert set(segments(values)) - {99} <= set(row)
            num_rows += 1
    assert num_rows > 5


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_cache_passes_the_records_on(on_disk: bool, tmp_path: Path):
    base = MapDataset.source(range(100, 120))[2:].map(lambda x: x if x % 5 else None)
    dataset = base.cache(tmp_path if on_disk else None).shuffle(seed=1).repeat(2)
    iterator = iter(dataset.to_iter_dataset().batch(3))

    for batch in iterator:
        assert [100 + index for index in indices(iterator)] == batch.tolist()
        assert {origin.epoch for origin in iterator.provenance().records} <= {0, 1}


def test_a_row_of_a_batch_that_was_taken_apart_names_its_own_record():
    plain = MapDataset.range(20).shuffle(seed=1)
    loader = load(range(20), shuffle=True, seed=3, num_epochs=1, batch_size=4)
    for dataset in (
        plain.batch(4).unbatch(),
        plain.to_iter_dataset().batch(4).filter(lambda batch: batch[0] % 3).unbatch(),
        loader.map(Unbatch()),
    ):
        iterator = iter(dataset)
        for element in iterator:
            assert indices(iterator) == [element]


def test_grains_packing_in_a_loader_names_the_document_of_each_segment():
    operation = experimental.PackAndBatchOperation(length_struct={"tokens": 9}, batch_size=2)
    sampler = IndexSampler(len(DOCUMENTS), shuffle=True, num_epochs=1, seed=3)
    loader = DataLoader(data_source=DOCUMENTS, sampler=sampler, operations=[operation])
    iterator = iter(loader)

    for values, _, _ in iterator:
        rows = [[origin.index + 1 for origin in row] for row in iterator.provenance().rows]
        assert rows == [segments(row) for row in values["tokens"]]


def test_rebatching_names_the_rows_of_the_new_batches():
    dataset = documents().map(lambda document: document["tokens"][0]).batch(5)
    iterator = iter(experimental.RebatchIterDataset(dataset, batch_size=3))

    for batch in iterator:
        assert [index + 1 for index in indices(iterator)] == batch.tolist()


def test_a_zipped_row_names_a_record_of_each_dataset():
    first, second = MapDataset.range(10).shuffle(seed=1), MapDataset.range(10).shuffle(seed=2)
    zipped = experimental.ZipMapDataset([first, second]).to_iter_dataset().batch(4)
    iterator = iter(zipped)

    for left, right in iterator:
        rows = iterator.provenance().rows
        assert [[origin.index for origin in row] for row in rows] == [
            list(row) for row in zip(left.tolist(), right.tolist(), strict=True)
        ]
        assert [origin.source_number for origin in rows[0]] == [0, 1]


def test_an_interleaved_element_names_its_dataset():
    parts = MapDataset.source([MapDataset.range(10 * part, 10 * part + 4) for part in range(3)])
    iterator = iter(experimental.InterleaveIterDataset(parts, cycle_length=2))

    for element in iterator:
        (origin,) = iterator.provenance().records
        assert 10 * origin.source_number + origin.index == element


@pytest.mark.parametrize("is_first", [False, True])
def test_interleaved_datasets_and_other_sources_have_numbers_of_their_own(is_first: bool):
    parts = [MapDataset.range(100 * part, 100 * part + 4) for part in range(1, 4)]
    interleaved = experimental.InterleaveIterDataset(parts, cycle_length=2)
    plain = MapDataset.range(4).to_iter_dataset()
    streams = [interleaved, plain] if is_first else [plain, interleaved]
    iterator = iter(IterDataset.concatenate(streams))

    numbers: dict[int, set[int]] = {}
    for element in iterator:
        (origin,) = iterator.provenance().records
        assert element % 100 == origin.index
        numbers.setdefault(element // 100, set()).add(origin.source_number)
    assert sorted(len(some) for some in numbers.values()) == [1, 1, 1, 1]
    assert set[int]().union(*numbers.values()) == {0, 1, 2, 3}

    iterator = iter(IterDataset.concatenate(streams))
    (plain_number,) = numbers[0]
    with pytest.raises(PlanError, match="below Interleave"):
        iterator.exclude(records=[(min(numbers[1]), 1)])
    iterator.exclude(records=[(plain_number, 1)])
    assert 1 not in list(iterator)


def test_a_feed_names_the_records_of_the_batch_that_it_returned():
    loader = load(np.arange(12, dtype=np.int32), shuffle=True, seed=0, num_epochs=1, batch_size=4)

    with feed(loader) as batches:
        with pytest.raises(ProvenanceError, match="no last element"):
            batches.provenance()
        for batch in batches:
            assert indices(batches) == batch.tolist()


class OwnStream(IterDataset[int]):
    def __iter__(self) -> Any:
        return OwnIterator()


class OwnIterator(DatasetIterator[int]):
    def __init__(self) -> None:
        super().__init__()
        self.number = -1

    def __next__(self) -> int:
        self.number += 1
        return self.number

    def get_state(self) -> dict[str, Any]:
        return {"number": self.number}

    def set_state(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def test_a_step_that_hides_its_records_is_named():
    iterator = iter(OwnStream().map(str))
    next(iterator)

    with pytest.raises(ProvenanceError, match="cannot be followed through OwnStream"):
        iterator.provenance()


def test_an_iterator_of_the_users_own_does_not_name_records():
    with pytest.raises(ProvenanceError, match="OwnIterator does not keep track of records"):
        OwnIterator().provenance()


def test_a_feed_of_an_iterator_of_the_users_own_does_not_name_records():
    with feed(OwnStream().batch(2)) as batches:
        next(batches)
        with pytest.raises(ProvenanceError, match="cannot be followed through OwnStream"):
            batches.provenance()
    batches = feed(OwnIterator())
    with batches, pytest.raises(ProvenanceError, match="records of OwnIterator are not known"):
        batches.provenance()


def test_a_filter_that_decides_otherwise_later_is_reported():
    seen: set[int] = set()

    def is_new(x: int) -> bool:
        is_first = x not in seen
        seen.add(x)
        return is_first

    iterator = iter(MapDataset.range(20).to_iter_dataset().filter(is_new).batch(2))
    next(iterator)

    with pytest.raises(ProvenanceError, match="made of other records"):
        iterator.provenance()


def test_provenance_reads_well():
    iterator = iter(load(range(5), num_epochs=1, batch_size=2, seed=7))
    next(iterator)

    assert str(iterator.provenance()) == (
        "row 0: record 0 of range(0, 5), epoch 0, position 0, seed 7\n"
        "row 1: record 1 of range(0, 5), epoch 0, position 1, seed 8"
    )
