"""Loader steps have names in the traces of `jax.profiler`."""

import gzip
import json
from pathlib import Path

import jax
import numpy as np

import gristmill as gm


class Scale(gm.MapTransform):
    def map(self, element: np.float64) -> np.float64:
        return element * 2


def test_steps_and_feeding_are_found_by_name(tmp_path: Path):
    loader = gm.DataLoader(
        data_source=list(np.arange(100.0)),
        sampler=gm.IndexSampler(100, num_epochs=1, shuffle=True, seed=0),
        operations=[Scale(), gm.Batch(10)],
    )
    documents = gm.MapDataset.range(20).map(lambda x: {"t": np.full(3, x)}).to_iter_dataset()
    packed = gm.experimental.FirstFitPackIterDataset(
        documents, length_struct={"t": 8}, num_packing_bins=2
    )

    with jax.profiler.trace(str(tmp_path)):
        for data in (loader, packed.batch(2)):
            with gm.feed(data) as batches:
                jax.block_until_ready(list(batches))

    (path,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {event["name"] for event in events if "gristmill" in event.get("name", "")}
    expected = {"wait", "load", "put", "reading list(<100 records>)", "Map Scale", "Batch(10)"}
    expected |= {"FirstFitPack(t=8, num_packing_bins=2)", "Map <lambda>", "Batch(2)"}
    assert {f"gristmill: {name}" for name in expected} <= names


def test_blocks_of_workers_are_marked_with_what_their_steps_took(tmp_path: Path):
    loader = gm.DataLoader(
        data_source=list(np.arange(100.0)),
        sampler=gm.IndexSampler(100, num_epochs=1, shuffle=True, seed=0),
        operations=[Scale(), gm.Batch(10)],
        worker_count=1,
    )
    with jax.profiler.trace(str(tmp_path)):
        assert len(list(loader)) == 10
    loader.close()

    (path,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = [event for event in events if event.get("name", "").startswith("gristmill: worker 0")]
    steps = {name: value for mark in marks for name, value in mark["args"].items()}
    assert {"reading list(<100 records>)", "Map Scale", "Batch(10)"} <= set(steps)
    assert all(value.endswith(" ms") for value in steps.values())
