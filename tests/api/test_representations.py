"""What objects show of themselves: short, without data, without addresses; and their lengths."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gristmill as gm
from gristmill import experimental, exporters, monitoring, transforms

NUMBERS = gm.MapDataset.range(10)
SECRET = 8_675_309
METADATA = gm.RecordMetadata(index=1, record_key=2, rng=np.random.default_rng(0))
DESCRIPTION = monitoring.Metadata("Records.", units=monitoring.Units.BYTES)


def loader(**arguments: Any) -> gm.DataLoader:
    return gm.load(range(10), num_epochs=2, batch_size=3, **arguments)


def stats() -> gm.Stats:
    made = loader()
    list(made)
    return made.stats()


def provenance() -> gm.Provenance:
    with iter(gm.load([SECRET] * 99, num_epochs=1, batch_size=99)) as batches:
        next(batches)
        return batches.provenance()


OBJECTS: dict[str, Any] = {
    "loader": lambda: loader(),
    "iterator": lambda: iter(loader()),
    "map dataset": lambda: NUMBERS.shuffle(seed=1).map(str).batch(2),
    "iter dataset": lambda: NUMBERS.to_iter_dataset().filter(bool).batch(2),
    "mixed dataset": lambda: gm.MapDataset.mix([NUMBERS, NUMBERS]),
    "dataset of a list": lambda: gm.MapDataset.source([SECRET] * 100),
    "dataset iterator": lambda: iter(NUMBERS.map(str)),
    "feed": lambda: gm.feed(loader()),
    "epochs": lambda: loader().epochs(2),
    "epochs of a shuffled loader": lambda: loader(shuffle=True, seed=0, worker_count=1).epochs(9),
    "feed of a user's iterator": lambda: gm.feed(OwnIterator()),
    "index sampler": lambda: gm.IndexSampler(10, num_epochs=1, seed=0),
    "sequential sampler": lambda: gm.SequentialSampler(10),
    "array source": lambda: gm.ArraySource({"x": np.full((100, 9), SECRET)}),
    "in-memory source": lambda: gm.InMemoryDataSource([SECRET] * 3),
    "read options": gm.ReadOptions,
    "worker options": gm.WorkerOptions,
    "worker options with a function": lambda: gm.WorkerOptions(worker_init_fn=init_worker),
    "Ray options": lambda: gm.RayOptions(address="10.0.0.1:6379", num_workers=4),
    "multiprocessing options": lambda: gm.MultiprocessingOptions(num_workers=2),
    "no sharding": gm.NoSharding,
    "shard by process": gm.ShardByJaxProcess,
    "subset sampler": lambda: gm.SubsetSampler([SECRET] * 1000),
    "weighted sampler": lambda: gm.WeightedSampler(np.arange(1.0, 1001.0), num_epochs=1, seed=0),
    "frame source": lambda: gm.sources.FrameSource(pd.DataFrame({"x": [SECRET] * 5})),
    "source of a user's class": lambda: gm.load(OwnSource(), num_epochs=1),
    "sampler that is a list": lambda: gm.DataLoader(data_source=range(3), sampler=[2, 1, 0]),
    "split": lambda: gm.split([SECRET] * 10, [0.5, 0.5], seed=0)[0],
    "mixed iterators": lambda: iter(gm.IterDataset.mix([NUMBERS.to_iter_dataset()] * 2)),
    "dataset of a generator": lambda: gm.from_generator(lambda: iter([SECRET])),
    "iterator of a generator": lambda: iter(gm.from_generator(lambda: iter([SECRET]))),
    "statistics": lambda: gm.statistics([SECRET]),
    "preview": lambda: loader().preview(2),
    "shard options": lambda: gm.ShardOptions(0, 2),
    "storage options": gm.StorageOptions,
    "skip errors": lambda: gm.SkipErrors(3),
    "stats": stats,
    "batch": lambda: gm.Batch(2, batch_fn=FUNCTION),
    "padded batch": lambda: gm.Batch(2, batch_fn=transforms.PadBatch(length=8)),
    "map operation": lambda: gm.MapOperation(FUNCTION),
    "random map operation": lambda: gm.RandomMapOperation(FUNCTION),
    "filter operation": lambda: gm.FilterOperation(FUNCTION),
    "batch operation": lambda: gm.BatchOperation(2, batch_fn=FUNCTION),
    "window": lambda: transforms.Window(2, batch_fn=FUNCTION),
    "scan": lambda: transforms.Scan(FUNCTION, 0),
    "buckets": lambda: transforms.BucketByLength([4], batch_sizes=2, length=FUNCTION),
    "record": lambda: gm.Record(METADATA, [SECRET] * 100),
    "metadata of a record": lambda: METADATA,
    "provenance": provenance,
    "pool of generators": lambda: experimental.RngPool(3),
    "prefetching iterator": lambda: experimental.ThreadPrefetchDatasetIterator(
        iter(NUMBERS.to_iter_dataset()), 2
    ),
    "export": lambda: exporters.to_callback(loader(), print),
    "counter": lambda: monitoring.Counter("/records", DESCRIPTION),
    "metric": lambda: monitoring.Metric("/size", DESCRIPTION, int),
    "event metric": lambda: monitoring.EventMetric("/time", DESCRIPTION),
    "description of a metric": lambda: DESCRIPTION,
    "buckets of a metric": lambda: monitoring.Bucketer.PowersOf(2),
    "packed": lambda: experimental.FirstFitPackIterDataset(
        NUMBERS.map(lambda x: {"x": np.full(2, x)}).to_iter_dataset(),
        length_struct={"x": 4},
        num_packing_bins=2,
    ),
}


def init_worker(worker: int, num_workers: int) -> None:
    """Do nothing."""


FUNCTION: Any = init_worker


class OwnSource:
    """A source without a `repr` of its own."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return SECRET


class OwnIterator(gm.DatasetIterator[int]):
    """An iterator without a `repr` of its own."""

    def __next__(self) -> int:
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS.keys())
def test_a_repr_is_short_without_data_and_without_an_address(make: Any):
    made = make()
    shown = repr(made)

    assert len(shown) < 220
    assert "\n" not in shown
    assert not re.search("0x[0-9a-f]{5}", shown)
    assert str(SECRET) not in shown
    assert "Planned" not in shown


def test_options_show_what_differs_from_the_defaults():
    assert repr(gm.WorkerOptions()) == "WorkerOptions()"
    assert repr(gm.StorageOptions(num_retries=3)) == "StorageOptions(num_retries=3)"
    options = gm.RayOptions(num_workers=4, max_restarts=0, worker_init_fn=init_worker)
    shown = "RayOptions(worker_init_fn=init_worker, max_restarts=0, num_workers=4)"
    assert repr(options) == shown


@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_position_in_an_endless_stream_has_no_number_of_records(batch_size: int | None):
    with iter(gm.load(range(7), batch_size=batch_size)) as iterator:
        next(iterator)
        number = 1 if batch_size is None else batch_size
        assert repr(iterator) == f"DataLoaderIterator(at record {number}, endless)"
        assert "endless" in repr(gm.feed(iterator))
        assert "9223" not in iterator._repr_html_()


def test_an_endless_shard_is_endless():
    sampler = gm.IndexSampler(7, shard_options=gm.ShardOptions(1, 2))
    made = gm.DataLoader(data_source=range(7), sampler=sampler, shard_options=None)
    assert repr(iter(made)) == "DataLoaderIterator(at record 0, endless)"


def test_statistics_have_the_style_of_the_other_panels_in_a_notebook():
    assert gm.statistics([1, 2])._repr_html_().startswith('<div class="run"><style>')


def test_the_repr_of_a_loader_reports_what_it_does():
    assert repr(loader(worker_count=None)) == (
        "<DataLoader: range(0, 10) -> IndexSampler -> Batch(3), 7 elements, worker_count=None>"
    )


@pytest.mark.parametrize("make", [loader, lambda: iter(loader()), lambda: iter(NUMBERS)])
def test_notebooks_show_the_verdict_and_the_steps_of_what_has_run(make: Any):
    made = make()
    assert "Nothing was measured yet" in made._repr_html_()
    list(made)
    shown = made._repr_html_()

    assert "Your code waited for data" in shown
    assert '<ol class="steps">' in shown
    assert "<table>" in made.stats()._repr_html_()


def test_an_explanation_is_a_line_in_a_shell_and_a_panel_in_a_notebook():
    made = loader()
    assert repr(made.explain()) == "<Explanation: nothing was measured yet>"
    list(made)
    explanation = made.explain()

    assert repr(explanation).startswith("<Explanation: waited for data ")
    assert "\n" not in repr(explanation)
    assert len(repr(explanation)) < 220
    assert '<div class="verdict">' in explanation._repr_html_()


def test_html_escapes_the_names_of_steps():
    def script(x: Any) -> Any:
        return x

    script.__qualname__ = "<script>alert(1)</script>"
    made = loader(transformations=[script])

    assert "<script>" not in made._repr_html_()
    assert "&lt;script&gt;" in made._repr_html_()


def test_the_table_of_statistics_has_a_row_for_each_step():
    lines = str(stats()).splitlines()

    heads = ["step", "share", "time", "CPU", "waiting", "lock", "no", "core"]
    assert lines[1].split() == heads
    assert lines[2].startswith("reading range(0, 10)")
    assert lines[3].startswith("Batch(3)")
    assert len(lines[1]) == len(lines[2]) == len(lines[3])


LENGTHS: list[tuple[Any, int]] = [
    (loader(), 7),
    (loader(drop_remainder=True), 6),
    (loader(shard_options=gm.ShardOptions(0, 2)), 4),
    (loader(worker_count=2), 7),
    (NUMBERS.to_iter_dataset(), 10),
    (NUMBERS.batch(4).to_iter_dataset(), 3),
    (NUMBERS.to_iter_dataset().batch(4).map(len), 3),
]


@pytest.mark.parametrize(("made", "length"), LENGTHS)
def test_a_known_length_is_the_number_of_elements(made: Any, length: int):
    assert len(made) == length == len(list(made))


ENDLESS_OR_UNKNOWN: list[Any] = [
    gm.load(range(10), batch_size=3),
    loader(transformations=[type("Odd", (gm.Filter,), {"filter": lambda self, x: x % 2 == 1})()]),
    gm.DataLoader(
        data_source=range(4),
        sampler=gm.IndexSampler(4, num_epochs=1, seed=0),
        on_error=gm.SkipErrors(2),
    ),
    NUMBERS.repeat().to_iter_dataset(),
    NUMBERS.repeat().to_iter_dataset().batch(2),
    NUMBERS.to_iter_dataset().filter(bool),
    experimental.LimitIterDataset(NUMBERS.to_iter_dataset(), 3),
]


@pytest.mark.parametrize("made", ENDLESS_OR_UNKNOWN)
def test_an_unknown_length_is_a_type_error(made: Any):
    with pytest.raises(TypeError, match="is not known before they are computed, or they never end"):
        len(made)
    assert bool(made)


@pytest.mark.parametrize(
    ("remainder", "length"), [("keep", 7), ("pad", 7), ("drop", 6)], ids=["keep", "pad", "drop"]
)
def test_the_length_of_a_feed_is_the_number_of_its_batches(remainder: Any, length: int):
    with gm.feed(loader(), remainder=remainder) as batches:
        assert len(batches) == length == len(list(batches))


def test_the_length_of_a_feed_of_full_batches():
    with gm.feed(gm.load(range(9), num_epochs=1, batch_size=3), remainder="drop") as batches:
        assert len(batches) == 3 == len(list(batches))


def test_the_length_of_a_feed_of_batches_of_another_size_is_unknown():
    with (
        gm.feed(loader(), remainder="drop", batch_size=2) as batches,
        pytest.raises(TypeError, match="`FeedIterator` is not known"),
    ):
        len(batches)


def test_the_length_of_a_feed_of_a_loader_that_skips_is_unknown():
    skipping = gm.DataLoader(
        data_source=range(4),
        sampler=gm.IndexSampler(4, num_epochs=1, seed=0),
        operations=[gm.Batch(2)],
        on_error=gm.SkipErrors(2),
    )
    with gm.feed(skipping) as batches, pytest.raises(TypeError, match="is not known"):
        len(batches)


def test_the_length_of_a_feed_of_a_users_iterator_is_unknown():
    batches = gm.feed(OwnIterator())
    with pytest.raises(TypeError, match="is not known"):
        len(batches)
    assert batches


def test_a_batch_function_is_shown_by_its_name_and_an_object_by_its_options():
    assert repr(gm.Batch(2, batch_fn=FUNCTION)).endswith("batch_fn=init_worker)")
    assert "batch_fn=PadBatch(" in repr(gm.Batch(2, batch_fn=transforms.PadBatch(length=8)))
