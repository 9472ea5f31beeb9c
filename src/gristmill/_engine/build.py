"""From a plan to stages, in whichever ways the settings allow."""

import os
from contextvars import ContextVar
from dataclasses import replace

from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.error_notes import step_name
from gristmill._engine.executors.inline import InlineExecutor
from gristmill._engine.executors.processes.executor import ProcessExecutor
from gristmill._engine.executors.processes.pool import WorkerPool
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.settings import Settings
from gristmill._engine.stages.base import NamedStage, Stage
from gristmill._engine.stages.batch_alignment import BatchAlignmentStage
from gristmill._engine.stages.filter_limits import FilterLimitStage
from gristmill._engine.stages.rechunk import AdaptiveBlockStage, RechunkStage
from gristmill._engine.stages.stack import stack_stages, stack_steps
from gristmill._engine.stateful.build import open_stateful
from gristmill._engine.stateful.interleave import InterleaveStage
from gristmill._engine.tuning.autotune import AutotunedStage, ExecutionStrategy
from gristmill._metrics.counters import Counters
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.batch import BatchNode
from gristmill._plan.nodes.combine_streams import InterleaveNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.filter import FilterNode
from gristmill._plan.nodes.flat_map import FlatMapNode
from gristmill._plan.nodes.stream import HintNode, ReadNode, StatefulNode, WorkersNode
from gristmill.options import MultiprocessingOptions

_outer: ContextVar[Settings | None] = ContextVar("gristmill_outer_settings", default=None)


def with_outer_workers(settings: Settings) -> Settings:
    """Give the settings of a stream with the workers of the one it is made for, if it is inside."""
    outer = _outer.get()
    if outer is None:
        return settings
    return replace(settings, multiprocessing=outer.multiprocessing, worker=outer.worker)


def open_stages(plan: Node, settings: Settings, counters: Counters) -> Stage:
    """Give the top stage of a plan.

    From the top down, steps that follow each other are one segment. It ends at the records of a
    source or dataset, or at a node with a state of its own, under which others begin.
    """
    steps: list[Step | BatchNode] = []
    bottom, num_above = plan, None
    while isinstance(bottom, Step | BatchNode | HintNode):
        match bottom:
            case ReadNode():
                settings = replace(settings, read=bottom.options)
            case WorkersNode():
                settings = _with_workers(bottom, settings, counters)
                num_above = len(steps)
            case HintNode():
                pass
            case FilterNode():
                steps.append(replace(bottom, limits=settings.limits))
            case _:
                steps.append(bottom)
        bottom = bottom.parent
    steps.reverse()
    if isinstance(bottom, StatefulNode):
        return _open_upper(bottom, steps, settings, counters)
    if isinstance(bottom, AccessNode) and not bottom.is_dense:
        bottom = replace(bottom, limits=settings.limits)
    for number, step in enumerate(steps):
        steps[number] = replace(step, parent=steps[number - 1] if number else bottom)
    num_sent = None if num_above is None else len(steps) - num_above
    lowest = replace(settings, num_sent=num_sent)
    segment = steps[-1] if steps else bottom
    first = counters.add_steps([step_name(bottom), *(step.label for step in steps)])
    stage: Stage
    if any(isinstance(step, BatchNode) and step.is_dense for step in steps):
        stage = BatchAlignmentStage(
            segment,
            lambda in_order: _open(segment, lowest, counters, first, in_order=in_order),
        )
    else:
        stage = _open(segment, lowest, counters, first, in_order=False)
    return _watched(stage, bottom, steps, settings)


def _with_workers(node: WorkersNode, settings: Settings, counters: Counters) -> Settings:
    """Give settings with worker processes, which all segments below share."""
    pool = WorkerPool(num_workers=node.options.num_workers, options=node.worker, counters=counters)
    return replace(settings, multiprocessing=node.options, worker=node.worker, pool=pool)


def _open_upper(
    node: StatefulNode, steps: list[Step | BatchNode], settings: Settings, counters: Counters
) -> Stage:
    is_lazy = isinstance(node, InterleaveNode)
    num_open = min(node.cycle, node.count) if is_lazy else len(node.parents)
    settings = replace(
        settings, num_concurrent_streams=settings.num_concurrent_streams * max(1, num_open)
    )
    if is_lazy:  # they come when the workers have long been told what there is to do
        settings = replace(settings, multiprocessing=MultiprocessingOptions())
    parents = [open_stages(parent, settings, counters) for parent in node.parents]
    counters.add_steps([node.label, *(step.label for step in steps)])
    clocks = counters.steps[-len(steps) :] if steps else []
    num_splits = sum(isinstance(step, FlatMapNode) for step in steps)
    stage: Stage
    if is_lazy:  # thousands may come and go, so their steps are not counted one by one
        stage = InterleaveStage(
            node,
            lambda opened: open_stages(opened, settings, Counters()),
            num_flat_maps=num_splits,
        )
    else:
        outer = _outer.set(settings)  # for a dataset of the user's, which makes iterators itself
        try:
            stage = open_stateful(node, parents, num_flat_maps=num_splits)
        finally:
            _outer.reset(outer)
    stage = NamedStage(stage, node.label)
    if not steps:
        return stage
    portions = RechunkStage(stage, policy=settings.policy)
    stage = AdaptiveBlockStage(stack_steps(portions, steps, clocks), portions)
    return _watched(stage, node, steps, settings)


def _watched(
    stage: Stage, bottom: Node, steps: list[Step | BatchNode], settings: Settings
) -> Stage:
    """Give the stage that counts what the filters of a segment leave out."""
    steps_above = range(len(steps))[::-1]
    labels = {
        count: step.label
        for count, step in zip(steps_above, steps, strict=True)
        if isinstance(step, FilterNode)
    }
    if isinstance(bottom, AccessNode) and not bottom.is_dense:
        labels[len(steps)] = bottom.parent.label
    return FilterLimitStage(stage, labels, settings.limits) if labels and settings.limits else stage


def _open(
    plan: Node, settings: Settings, counters: Counters, first: int, *, in_order: bool
) -> Stage:
    skips = settings.on_error is not None
    high = cut_plan(plan, skips_errors=skips, below_batches=False, in_order=in_order)
    sent = cut_plan(
        plan,
        skips_errors=skips,
        below_batches=False,
        in_order=in_order,
        max_read=settings.num_sent,
    )
    low = cut_plan(plan, skips_errors=skips, below_batches=True, in_order=in_order)

    def by_processes(num_workers: int) -> tuple[Stage, ProcessExecutor]:
        pool = settings.pool
        if pool is None or not pool.accepts_streams:
            pool = WorkerPool(num_workers=num_workers, options=settings.worker, counters=counters)
        executor = ProcessExecutor(
            sent,
            pool,
            buffer_size=settings.multiprocessing.per_worker_buffer_size,
            read=settings.read,
            policy=settings.policy,
        )
        return stack_stages(sent, executor, counters, first, needs_thread=True), executor

    if settings.multiprocessing.num_workers:
        counters.executor = "processes"
        return by_processes(settings.multiprocessing.num_workers)[0]

    inline = stack_stages(
        high, InlineExecutor(open_cut(high), policy=settings.policy), counters, first
    )
    strategies = [ExecutionStrategy(kind="inline", size=1, open=lambda: (inline, None))]
    num_threads = settings.read.num_threads // settings.num_concurrent_streams
    if settings.runs_ahead and num_threads > 1:
        threads = ThreadExecutor(
            open_cut(low),
            most_positions_ahead=settings.read.prefetch_buffer_size,
            policy=settings.policy,
        )
        stage = stack_stages(low, threads, counters, first)
        strategies += [
            ExecutionStrategy(kind="threads", size=size, open=lambda: (stage, threads))
            for size in _doubling(num_threads)
        ]
    if settings.runs_ahead and settings.is_tuned:
        strategies += [
            ExecutionStrategy(
                kind="processes", size=size, open=lambda size=size: by_processes(size)
            )
            for size in _doubling(settings.policy.max_tried_workers or _num_cores())[::-1] or [1]
        ]
    return (
        inline
        if len(strategies) == 1
        else AutotunedStage(
            strategies, (0,) * (1 + high.num_flat_maps), counters, policy=settings.policy
        )
    )


def _doubling(most: int) -> list[int]:
    """Give 2, 4, 8 and so on up to `most`, which comes last."""
    sizes = [2**power for power in range(1, most.bit_length()) if 2**power < most]
    return [*sizes, most] if most > 1 else []


def _num_cores() -> int:
    """Count the cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
