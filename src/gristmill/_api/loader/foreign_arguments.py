"""What to write instead of the arguments of other loaders."""

from gristmill._base.argument_advice import POSITIONAL

_OF_PYTORCH = {
    "num_workers": "Pass `worker_count=...`: the number of worker processes.",
    "drop_last": "Pass `drop_remainder=True`.",
    "collate_fn": "Make batches with a transformation: `Batch(batch_size, batch_fn=...)`.",
    "pin_memory": "`gristmill.feed(loader)` moves batches to devices.",
    "persistent_workers": "Leave it out: workers are always kept between epochs.",
    "prefetch_factor": "Pass `read_options=ReadOptions(prefetch_buffer_size=...)`.",
    "worker_init_fn": "Pass `worker_options=WorkerOptions(worker_init_fn=...)`.",
    "multiprocessing_context": "Leave it out: workers are always clean interpreters.",
    "generator": "Pass `seed=...`.",
    "batch_sampler": "Pass a sampler of single records to `DataLoader`, and `Batch(...)`.",
    "transform": "Pass `transformations=[...]`.",
}

OF_LOAD = {
    **_OF_PYTORCH,
    POSITIONAL: "`load` takes the source, and keyword arguments: `load(source, batch_size=32)`.",
    "dataset": "Pass it first: `load(source, ...)`.",
    "data_source": "Pass it first: `load(source, ...)`.",
    "source": "Pass it first: `load(source, ...)`.",
    "operations": "Pass `transformations=[...]`.",
    "epochs": "Pass `num_epochs=...`.",
}
"""Advice for `load`."""

_LOAD = "`gristmill.load(source, {})` makes a sampler and batches."

OF_DATA_LOADER = {
    **_OF_PYTORCH,
    POSITIONAL: (
        "`DataLoader` takes keyword arguments: `DataLoader(data_source=..., sampler=..., "
        "operations=[...])`. " + _LOAD.format("batch_size=32, shuffle=True, seed=0")
    ),
    "drop_last": "Pass `operations=[..., Batch(batch_size, drop_remainder=True)]`.",
    "batch_size": "Pass `operations=[..., Batch(batch_size)]`. " + _LOAD.format("batch_size=32"),
    "shuffle": "The sampler shuffles. " + _LOAD.format("shuffle=True, seed=0"),
    "seed": "The sampler has it. " + _LOAD.format("shuffle=True, seed=0"),
    "generator": "The sampler has a `seed`. " + _LOAD.format("shuffle=True, seed=0"),
    "num_epochs": "The sampler has it. " + _LOAD.format("num_epochs=1"),
    "dataset": "Pass `data_source=...`.",
    "source": "Pass `data_source=...`.",
    "transform": "Pass `operations=[...]`.",
    "transformations": "Pass `operations=[...]`.",
    "sampler": (
        "Pass `IndexSampler(num_records, shuffle=True, seed=0, num_epochs=1)`. "
        + _LOAD.format("num_epochs=1")
    ),
    "data_source": "Pass an object with `__len__` and `__getitem__`.",
}
"""Advice for `DataLoader`."""
