"""Open the stages of a plan: it is divided into segments, one below each stateful node."""

from dataclasses import replace
from functools import partial
from typing import Any

from gristmill._engine.access.nested_clock import base_step_names
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.segment import Segment
from gristmill._engine.settings import Settings
from gristmill._engine.stages.base import ClockedStage, MeteredStage, PullMeter, Stage
from gristmill._engine.stages.batch import stack_steps
from gristmill._engine.stages.batch_alignment import BatchAlignmentStage
from gristmill._engine.stages.filter_limits import FilterLimitStage
from gristmill._engine.stages.rechunk import AdaptiveBlockStage, RechunkStage
from gristmill._engine.stateful.batching.bucket import BucketStage
from gristmill._engine.stateful.build import open_stateful
from gristmill._engine.stateful.combine.interleave import InterleaveStage
from gristmill._engine.stateful.user_streams.custom import CustomStage
from gristmill._engine.stateful.user_streams.sliced_stream import SlicedStreamStage
from gristmill._metrics.counters import Counters
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.combine_streams import InterleaveNode
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.hints import HintNode, ReadNode, WorkersNode
from gristmill._plan.nodes.sliced_stream import SlicedStreamNode, SliceReader
from gristmill._plan.nodes.steps import BatchNode, FilterNode, FlatMapNode
from gristmill._plan.nodes.stream import StatefulNode
from gristmill.options import MultiprocessingOptions, ReadOptions


def open_stages(plan: Node, settings: Settings, counters: Counters) -> Stage:
    """Return the highest stage of a plan.

    From the top down, steps that follow each other form a segment. It ends at the records of a
    source or dataset, or at a stateful node, whose parents have segments of their own.
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
        return _open_stateful_segment(bottom, steps, settings, counters)
    num_sent = None if num_above is None else len(steps) - num_above
    return _open_segment(bottom, steps, replace(settings, num_sent=num_sent), counters)


def _with_workers(node: WorkersNode, settings: Settings, counters: Counters) -> Settings:
    """Return settings with worker processes, which all segments below share."""
    session = PoolSession(
        settings.pools,
        num_workers=node.options.num_workers,
        options=node.worker,
        counters=counters,
    )
    return replace(settings, multiprocessing=node.options, worker=node.worker, session=session)


def _open_segment(
    bottom: Node, steps: list[Step | BatchNode], settings: Settings, counters: Counters
) -> Stage:
    """Return the stage of steps on the records of a source or dataset."""
    if isinstance(bottom, AccessNode) and not bottom.is_dense:
        bottom = replace(bottom, limits=settings.limits)
    for number, step in enumerate(steps):
        steps[number] = replace(step, parent=steps[number - 1] if number else bottom)
    segment = Segment(
        plan=steps[-1] if steps else bottom,
        settings=settings,
        counters=counters,
        first_step=counters.add_steps([*base_step_names(bottom), *(step.label for step in steps)]),
    )
    stage: Stage
    if any(isinstance(step, BatchNode) and step.is_dense for step in steps):
        stage = BatchAlignmentStage(segment)
    else:
        stage = segment.open(in_order=False)
    return _with_filter_limits(stage, bottom, steps, settings)


def _open_stateful_segment(
    node: StatefulNode, steps: list[Step | BatchNode], settings: Settings, counters: Counters
) -> Stage:
    """Return the stage of steps on a stateful node, with the segments below that node."""
    is_lazy = isinstance(node, InterleaveNode)
    num_open = min(node.cycle, node.count) if is_lazy else len(node.parents)
    settings = replace(
        settings, num_concurrent_streams=settings.num_concurrent_streams * max(1, num_open)
    )
    if is_lazy:  # its parents are opened one by one, when the workers already have their plans
        settings = replace(settings, multiprocessing=MultiprocessingOptions())
    below = PullMeter()
    parents: list[Stage] = [
        MeteredStage(open_stages(parent, settings, counters), below) for parent in node.parents
    ]
    first = counters.add_steps([node.label, *(step.label for step in steps)])
    clock, *clocks = counters.steps[first : first + 1 + len(steps)]
    num_flat_maps = sum(isinstance(step, FlatMapNode) for step in steps)
    stage: Stage
    if is_lazy:
        stage = InterleaveStage(
            node, partial(_open_uncounted, settings), num_flat_maps=num_flat_maps
        )
    elif isinstance(node, SlicedStreamNode):
        stage = SlicedStreamStage(node, partial(_open_slice, settings), num_flat_maps=num_flat_maps)
    else:
        stage = open_stateful(node, parents, num_flat_maps=num_flat_maps)
    if isinstance(stage, BucketStage):
        stage.clock = clock
    if isinstance(stage, CustomStage):
        stage.use_options(settings.dataset_options)
        if settings.multiprocessing.num_workers:
            stage.use_workers(settings.multiprocessing, settings.worker)
    stage = ClockedStage(stage, clock, below)
    if not steps:
        return stage
    rechunked = RechunkStage(stage, policy=settings.policy)
    stage = AdaptiveBlockStage(stack_steps(rechunked, steps, clocks), rechunked)
    return _with_filter_limits(stage, node, steps, settings)


def _open_uncounted(settings: Settings, plan: Node) -> Stage:
    """Return the stage of one of thousands of streams, whose steps are not counted one by one."""
    return open_stages(plan, settings, Counters())


def _open_slice(settings: Settings, node: SlicedStreamNode, state: list[Any]) -> Stage:
    """Return the stage of a slice of a user's stream starting at a state, in one worker."""
    reader = SliceReader(node=node, start=state, options=settings.dataset_options)
    elements = CustomNode(site=node.site, dataset=reader, name=node.name)
    settings = replace(
        settings,
        read=ReadOptions(num_threads=0),  # in order
        multiprocessing=replace(node.options, num_workers=1),
        worker=node.worker,
        session=None,
    )
    return open_stages(AccessNode(site=node.site, parent=elements), settings, Counters())


def _with_filter_limits(
    stage: Stage, bottom: Node, steps: list[Step | BatchNode], settings: Settings
) -> Stage:
    """Return a stage that counts how many elements each filter of a segment drops, if limited."""
    steps_above = range(len(steps))[::-1]
    labels = {
        count: step.label
        for count, step in zip(steps_above, steps, strict=True)
        if isinstance(step, FilterNode)
    }
    if isinstance(bottom, AccessNode) and not bottom.is_dense:
        labels[len(steps)] = bottom.parent.label
    return FilterLimitStage(stage, labels, settings.limits) if labels and settings.limits else stage
