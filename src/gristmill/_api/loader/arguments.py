"""The arguments of `DataLoader`: their checks, and the settings and plan they stand for."""

from dataclasses import replace
from typing import Literal

from gristmill._api.plan_access import source_node
from gristmill._base.call_site import call_site, warn_user
from gristmill._base.checks import as_int, as_kind
from gristmill._data.sampling.samplers import BlockSampler
from gristmill._data.sampling.shard_options import EMPTY_SHARD_COUNT
from gristmill._data.sampling.user_samplers import AnySampler, as_sampler
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.settings import Settings
from gristmill._engine.tuning.learned import LearnedChoices
from gristmill._plan.nodes.hints import as_on_error
from gristmill._plan.nodes.sampled import SampleNode, shard_for
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import (
    MultiprocessingOptions,
    RayOptions,
    ReadOptions,
    ShardOptions,
    SkipErrors,
    WorkerOptions,
)
from gristmill.types import Element, RandomAccessDataSource


def loader_settings(
    worker_count: int | None,
    worker_buffer_size: int,
    read_options: ReadOptions | None,
    enable_profiling: bool,
    on_error: Literal["raise"] | SkipErrors,
    worker_options: WorkerOptions | None,
    *,
    pools: PoolKeeper,
) -> Settings:
    """Return the settings that arguments of a `DataLoader` stand for."""
    read = as_kind(
        "read_options",
        ReadOptions() if read_options is None else read_options,
        ReadOptions,
        remedy="Pass `ReadOptions(num_threads=...)`.",
    )
    worker = as_kind(
        "worker_options",
        WorkerOptions() if worker_options is None else worker_options,
        WorkerOptions,
        remedy="Pass `WorkerOptions(...)` or `RayOptions(...)`.",
    )
    num_workers = None if worker_count is None else as_int("worker_count", worker_count)
    is_tuned = num_workers is None and not isinstance(worker, RayOptions)
    if isinstance(worker, RayOptions):
        num_workers, worker = _as_ray_workers(num_workers, worker)
    return Settings(
        read=read,
        multiprocessing=MultiprocessingOptions(
            num_workers=num_workers or 0,
            per_worker_buffer_size=as_int("worker_buffer_size", worker_buffer_size),
            enable_profiling=enable_profiling,
        ),
        worker=worker,
        is_tuned=is_tuned,
        on_error=as_on_error(on_error),
        pools=pools,
        learned=LearnedChoices(),
    )


def _as_ray_workers(worker_count: int | None, options: RayOptions) -> tuple[int, RayOptions]:
    """Return how many actors to begin with, and the options with their number, if it is fixed."""
    fixed = options.num_workers if worker_count is None else worker_count
    if fixed == 0 and options.num_workers is not None:
        raise PlanError(
            "`worker_count=0` computes everything in this process, but "
            f"`RayOptions(num_workers={options.num_workers})` asks for actors. Pass "
            f"`worker_count={options.num_workers}`, or `worker_count=None`."
        )
    if fixed and options.num_workers not in (None, fixed):
        raise PlanError(
            f"`worker_count` is {fixed}, but `RayOptions(num_workers={options.num_workers})`. Pass "
            "one of them only."
        )
    if fixed is None:
        return options.min_workers, options
    return fixed, replace(options, num_workers=fixed or None)


def sample_node(
    data_source: RandomAccessDataSource[Element],
    given: AnySampler,
    shard_options: ShardOptions | None,
) -> SampleNode:
    """Return the node of the sampled records, and warn if the shard has none."""
    sampler = as_sampler(given)
    sample = SampleNode(
        site=call_site(),
        parent=source_node(data_source),
        sampler=sampler,
        shard=shard_for(sampler, shard_options),
    )
    is_meant = sample.shard.shard_count == EMPTY_SHARD_COUNT
    if isinstance(sampler, BlockSampler) and sample.length() == 0 and not is_meant:
        warn_user(f"{sample.shard} gets no records. Use fewer shards.")
    return sample


def as_shard(shard: ShardOptions | tuple[int, int]) -> ShardOptions:
    """Return the shard that an index and a number of shards stand for."""
    if isinstance(shard, ShardOptions):
        return shard
    try:
        index, count = shard
    except (TypeError, ValueError):
        raise PlanTypeError(
            f"`shard` must be a `ShardOptions`, or the index and number of shards, got {shard!r}."
        ) from None
    return ShardOptions(index, count)
