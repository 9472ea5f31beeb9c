"""Laws of all node classes, and rows that each of them needs in the tables of the engine.

To add a node class, add an example here. The tests then fail until the class has a reader or a
stage.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

from gristmill import (
    MultiprocessingOptions,
    ReadOptions,
    SequentialSampler,
    ShardOptions,
    WorkerOptions,
)
from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._base.trees.tree import flatten
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.splits import split_parts
from gristmill._data.sampling.weights import WeightedDraws
from gristmill._engine.access.reader import READERS, STEPS
from gristmill._engine.provenance.trace import PASSED_ON, TRACES
from gristmill._engine.stateful.build import STAGES
from gristmill._plan import nodes
from gristmill._plan.cursor_checks import STATE_CHECKS
from gristmill._plan.describe import describe
from gristmill._plan.nodes.base import ENDLESS, EpochChange, Node, RecordsNode, Step
from gristmill._plan.nodes.buckets import BucketNode, BucketStreamNode, HeldElementsNode
from gristmill._plan.nodes.cached import REMEDIES, StoredNode
from gristmill._plan.nodes.combine import (
    ConcatenateNode,
    MixNode,
    ReshardedNode,
    SelectNode,
    ZipNode,
)
from gristmill._plan.nodes.combine_streams import (
    ChainNode,
    ConcatStreamsNode,
    InterleaveNode,
    MixStreamNode,
    ZipStreamNode,
)
from gristmill._plan.nodes.dataset import AccessNode, CustomNode
from gristmill._plan.nodes.exclude import ExcludeNode, SwitchNode
from gristmill._plan.nodes.hints import (
    HintNode,
    OptionsNode,
    PrefetchNode,
    ReadNode,
    SeedNode,
    WorkersNode,
)
from gristmill._plan.nodes.origin_leaf import OriginLeafNode
from gristmill._plan.nodes.packing import ConcatSplitNode, PackNode, packed_features
from gristmill._plan.nodes.rearrange import (
    PickNode,
    RemainingNode,
    RepeatNode,
    ShuffleNode,
    SliceNode,
    SplitNode,
    WeightedNode,
    WindowShuffleNode,
)
from gristmill._plan.nodes.record_operations import OperationsNode, PackBatchesNode
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill._plan.nodes.sliced_stream import SlicedStreamNode
from gristmill._plan.nodes.steps import (
    BatchNode,
    FanOutNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    RandomMapNode,
    SeededMapNode,
)
from gristmill._plan.nodes.stream import (
    CacheNode,
    CountedMapNode,
    CustomStreamNode,
    LimitNode,
    RebatchNode,
    RecordStreamNode,
    RepeatStreamNode,
    StatefulNode,
    StreamStepNode,
    WindowShuffleStreamNode,
)
from gristmill._plan.nodes.stream_steps import ScanNode, SkipNode, SlidingWindowNode
from gristmill._plan.sharding import cut_into_shards
from gristmill.errors import PlanError, SpecError, StateError
from tests.plan.streams import elements_of

HERE = "train.py:1"
SHARD = ShardOptions(0, 2)
REMAINING = Remaining((8,)).after([1, 2])
SOURCE = SourceNode(site=HERE, source=[*range(8)])
STREAM = AccessNode(site=HERE, parent=SOURCE)
BUCKETS = BucketByLength([2, 9], batch_sizes=2)
LENGTHS, FEATURES = packed_features({"tokens": 4}, meta_features=())


class Lines:
    """A stream without records."""

    start = 0

    def read_from(self, position: Any, /) -> Iterator[Any]:
        return iter(())


def a_function(*arguments: Any) -> Any:
    return arguments


def over(parent: Node) -> dict[str, Any]:
    return {"site": HERE, "parent": parent}


def applied(parent: Node) -> dict[str, Any]:
    return {**over(parent), "name": "a_function", "function": a_function}


EXAMPLES: list[Node] = [
    SOURCE,
    SampleNode(**over(SOURCE), sampler=SequentialSampler(8), shard=SHARD),
    CustomNode(site=HERE, dataset=[1, 2], name="Own"),
    STREAM,
    MapNode(**applied(SOURCE)),
    MapWithIndexNode(**applied(SOURCE)),
    OriginLeafNode(**over(SOURCE)),
    RandomMapNode(**applied(SampleNode(**over(SOURCE), sampler=SequentialSampler(8), shard=SHARD))),
    SeededMapNode(**applied(SOURCE), seed=1),
    FlatMapNode(**applied(STREAM), max_fan_out=2),
    FanOutNode(**applied(SOURCE), max_fan_out=2),
    FilterNode(**applied(SOURCE)),
    BatchNode(**over(SOURCE), size=3),
    BucketNode(**over(SOURCE), buckets=BUCKETS, lengths=np.arange(8)),
    BucketStreamNode(**over(STREAM), buckets=BUCKETS),
    HeldElementsNode(**over(STREAM), runs=((2, (3,)),)),
    SlidingWindowNode(**over(STREAM), size=3, stride=1),
    ScanNode(**applied(STREAM), initial=0),
    SkipNode(**over(STREAM), count=3),
    ConcatStreamsNode(site=HERE, inputs=(STREAM, STREAM)),
    SeedNode(**over(SOURCE), seed=1),
    StoredNode(**over(SOURCE), folder="cache", max_bytes=1000),
    ReadNode(**over(STREAM), options=ReadOptions()),
    WorkersNode(**over(STREAM), options=MultiprocessingOptions(), worker=WorkerOptions()),
    PrefetchNode(**over(STREAM), buffer_size=2),
    OptionsNode(**over(STREAM), options={"min_shm_size": 1}),
    ShuffleNode(**over(SOURCE), seed=1),
    WindowShuffleNode(**over(SOURCE), window=3, seed=1),
    SliceNode(**over(SOURCE), start=0, stop=8, step=2),
    PickNode(**over(SOURCE), picks=(1, 0)),
    SplitNode(**over(SOURCE), part=split_parts(8, [6, 2], seed=0)[0]),
    WeightedNode(**over(SOURCE), draws=WeightedDraws.of(np.arange(8), seed=0)),
    RepeatNode(**over(SOURCE), num_epochs=2),
    RemainingNode(**over(SOURCE), remaining=REMAINING, shard=SHARD),
    MixNode(site=HERE, inputs=(SOURCE, SOURCE), proportions=(2, 1)),
    SelectNode(site=HERE, inputs=(SOURCE, SOURCE), selection=[(0, 1), (1, 0)]),
    ConcatenateNode(site=HERE, inputs=(SOURCE, SOURCE)),
    ReshardedNode(site=HERE, inputs=(SOURCE,), remaining=REMAINING, shard=SHARD),
    ExcludeNode(**over(SOURCE), records=(1, 3)),
    SwitchNode(site=HERE, inputs=(SOURCE, ExcludeNode(**over(SOURCE), records=(1,))), first=2),
    ZipNode(site=HERE, inputs=(SOURCE, SOURCE)),
    RecordStreamNode(site=HERE, stream=Lines()),
    CustomStreamNode(site=HERE, dataset=Lines(), name="Own"),
    CountedMapNode(**applied(STREAM)),
    WindowShuffleStreamNode(**over(STREAM), window=3, seed=1),
    RebatchNode(**over(STREAM), size=3),
    RepeatStreamNode(**over(STREAM)),
    LimitNode(**over(STREAM), count=3),
    OperationsNode(
        **over(SampleNode(**over(SOURCE), sampler=SequentialSampler(8), shard=SHARD)),
        operations=(iter,),
        names=("iter",),
    ),
    PackBatchesNode(**over(STREAM), length_struct={"x": 4}, size=2, max_documents=None),
    CacheNode(**over(STREAM)),
    MixStreamNode(site=HERE, inputs=(STREAM, STREAM), proportions=(2, 1), names=("a", "b")),
    ZipStreamNode(site=HERE, inputs=(STREAM, STREAM)),
    ChainNode(site=HERE, inputs=(STREAM, STREAM), starts=((3,), None)),
    InterleaveNode(site=HERE, node_at=lambda _: STREAM, count=2, cycle=1),
    SlicedStreamNode(
        site=HERE,
        dataset=[1, 2],
        name="Own",
        index=0,
        count=2,
        is_sequential=False,
        options=MultiprocessingOptions(num_workers=2),
        worker=WorkerOptions(),
    ),
    PackNode(
        **over(STREAM),
        length_struct=LENGTHS,
        features=FEATURES,
        listed_features=(),
        num_bins=2,
        is_best_fit=False,
        shuffles_bins=False,
        seed=0,
        group_by=None,
        max_documents=None,
    ),
    ConcatSplitNode(
        **over(STREAM),
        features=FEATURES,
        splits_full_length=True,
        bos_features=frozenset(),
        bos_token=None,
    ),
]
"""One instance of each node class."""


def subclasses(cls: type[Node]) -> Iterator[type[Node]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def node_classes() -> list[type[Node]]:
    """Return all node classes of the package that are not meant to be subclassed."""
    for module in pkgutil.iter_modules(nodes.__path__, f"{nodes.__name__}."):
        importlib.import_module(module.name)
    return [
        cls
        for cls in dict.fromkeys(subclasses(Node))
        if cls.__module__.startswith("gristmill.") and not cls.__subclasses__()
    ]


def how_to_run(cls: type[Node]) -> list[str]:
    """Return what runs a node of some class. Exactly one entry is right."""
    # Hints are removed when a stream is opened; one that datasets use, too, has a reader.
    is_only_of_streams = issubclass(cls, HintNode) and cls is not SeedNode
    return (
        ["reader"] * (cls in READERS)
        + ["stage"] * (cls in STAGES)
        + ["hint"] * is_only_of_streams
        + ["opens streams while it runs"] * (cls in (InterleaveNode, SlicedStreamNode))
    )


def every_node() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("node", EXAMPLES, ids=lambda node: type(node).__name__)


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_each_node_class_has_an_example_here(cls: type[Node]):
    assert [type(node) for node in EXAMPLES].count(cls) == 1


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_each_node_class_is_run_by_exactly_one_reader_or_stage(cls: type[Node]):
    assert len(how_to_run(cls)) == 1


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_each_step_of_a_stream_can_run_on_a_block(cls: type[Node]):
    # Batches have a stage of their own; `FanOutNode` exists in datasets only.
    if issubclass(cls, Step) and cls not in (BatchNode, FanOutNode):
        assert cls in STEPS


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_each_node_class_is_traced_unless_only_user_code_knows_its_records(cls: type[Node]):
    user_code = (RecordStreamNode, CustomStreamNode, SlicedStreamNode, OperationsNode)

    assert [cls in TRACES, issubclass(cls, PASSED_ON), cls in user_code].count(True) == 1


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_the_state_of_each_stateful_node_is_checked_unless_user_code_defines_it(cls: type[Node]):
    checks = [kind for kind, _ in STATE_CHECKS if issubclass(cls, kind)]
    has_state = issubclass(cls, StatefulNode) and cls not in (CustomStreamNode, SlicedStreamNode)

    assert len(checks) == has_state


@pytest.mark.parametrize("cls", node_classes(), ids=lambda cls: cls.__name__)
def test_each_node_class_is_final_and_frozen_and_has_keyword_arguments_only(cls: Any):
    assert cls.__final__
    assert cls.__setattr__ is Node.__setattr__  # raises
    assert all(field.kw_only for field in fields(cls))


def test_a_new_node_class_without_a_row_is_found():
    @final
    @frozen_dataclass
    class Forgotten(Step):  # pyright: ignore[reportGeneralTypeIssues] - it has no answers either
        @property
        def label(self) -> str:
            return "Forgotten"

    assert Forgotten in [*subclasses(Node)]
    assert how_to_run(Forgotten) == []
    assert Forgotten not in [type(node) for node in EXAMPLES]


def test_a_node_class_without_parents_or_a_label_cannot_be_used():
    @frozen_dataclass
    class Nameless(Step):
        pass

    @frozen_dataclass
    class Rootless(Node):
        @property
        def label(self) -> str:
            return "Rootless"

        def length(self) -> int:
            return 0

    with pytest.raises(TypeError, match="label"):
        Nameless(site=HERE, parent=SOURCE)  # pyright: ignore[reportAbstractUsage]
    with pytest.raises(TypeError, match=r"parents.*with_parents"):
        Rootless(site=HERE)  # pyright: ignore[reportAbstractUsage]


@every_node()
def test_a_node_with_the_parents_it_has_is_equal(node: Node):
    assert all(isinstance(parent, Node) for parent in node.parents)
    assert node.with_parents(node.parents) == node


@every_node()
def test_a_node_with_other_parents_has_those(node: Node):
    others = [PrefetchNode(**over(parent), buffer_size=7) for parent in node.parents]
    if isinstance(node, SampleNode):
        others = [SourceNode(site=HERE, source=[*range(9)])]
    changed = node.with_parents(others)
    assert changed.parents == tuple(others)
    assert type(changed) is type(node)


@every_node()
def test_a_node_has_a_label_without_addresses_and_a_length(node: Node):
    assert node.label
    assert " at 0x" not in node.label or isinstance(node, RecordStreamNode)
    assert node.length() > 0
    assert isinstance(node.is_dense, bool)


@every_node()
def test_hints_caches_origins_exclusions_and_access_are_not_part_of_a_description(node: Node):
    assert (node.description is None) == isinstance(
        node,
        HintNode | AccessNode | StoredNode | OriginLeafNode | ExcludeNode | SwitchNode,
    )
    assert describe(node).keys() == {"source", "order", "steps"}


@every_node()
def test_the_batch_size_is_a_number_only_above_batches(node: Node):
    assert node.batch_size == (
        3 if isinstance(node, BatchNode | RebatchNode | SlidingWindowNode) else None
    )


@every_node()
def test_the_element_spec_is_a_spec_error_where_the_parents_have_none(node: Node):
    def unknown() -> Any:
        raise SpecError("unknown")

    with pytest.raises(SpecError):
        node.element_spec([unknown for _ in node.parents], None)


@every_node()
def test_an_index_is_known_in_both_directions_or_in_none(node: Node):
    try:
        cursor = node.cursor_at(2)
    except StateError:
        with pytest.raises((StateError, TypeError)):
            node.index_at((0,))
    else:
        assert node.index_at(cursor) == 2


@every_node()
def test_a_stream_that_can_reshard_names_a_cursor_for_each_parent(node: Node):
    if isinstance(node, StatefulNode):
        cursors = node.parent_cursors(None)
        assert cursors is None or cursors == [None] * len(node.parents)
        assert node.held(None) is None


@every_node()
def test_records_have_a_shard(node: Node):
    if isinstance(node, RecordsNode):
        assert node.own_shard in ((0, 1), (0, 2))
        assert not node.has_contiguous_shards


NOT_IN_EPOCHS = (AccessNode, SampleNode, FlatMapNode, RemainingNode, ReshardedNode)
"""Nodes with a reader, of streams or of what remains of one epoch."""

WITH_EPOCHS = [node for node in EXAMPLES if type(node) in READERS]
WITH_EPOCHS = [node for node in WITH_EPOCHS if not isinstance(node, NOT_IN_EPOCHS)]


@pytest.mark.parametrize("node", WITH_EPOCHS, ids=lambda node: type(node).__name__)
def test_epochs_are_equal_where_a_node_says_so(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # for the cache
    if node.epoch_change in (EpochChange.NONE, EpochChange.NONE_BELOW) and node.length() < ENDLESS:
        repeated = RepeatNode(**over(node), num_epochs=2)
        found = list(map(repr, elements_of(AccessNode(**over(repeated), keeps_none=True))))
        assert found[: len(found) // 2] == found[len(found) // 2 :]


@pytest.mark.parametrize("change", EpochChange)
def test_each_change_between_epochs_has_a_remedy_for_caches(change: EpochChange):
    assert (change in REMEDIES) == (change not in (EpochChange.NONE, EpochChange.NONE_BELOW))


@every_node()
def test_a_node_that_has_a_function_as_a_field_says_that_it_calls_it(node: Node):
    functions = {"function", "operations", "node_at"} & {field.name for field in fields(node)}

    # Operations over records and the datasets of an interleaving are made by code, not part of it.
    assert node.calls_function == (functions == {"function"})


@every_node()
def test_an_index_of_the_parent_is_known_only_below_one_parent(node: Node):
    found = node.to_parent(np.arange(2))

    assert found is None or (len(node.parents) == 1 and len(found) == 2)
    read = node.num_read(2)
    assert read is None or (len(node.parents) == 1 and read >= 0)


def tokens(count: int) -> Node:
    records = [{"tokens": np.array([100 + number])} for number in range(count)]
    return AccessNode(site=HERE, parent=SourceNode(site=HERE, source=records))


def numbers(count: int) -> Node:
    records = [np.array([100 + number]) for number in range(count)]
    return AccessNode(site=HERE, parent=SourceNode(site=HERE, source=records))


OF_LOADERS = (OperationsNode, PackBatchesNode)
"""Nodes that `cut_into_shards` never meets, because loaders have shards of their own."""


def records_in(plan: Node) -> Counter[int]:
    """Count the records in the elements of a stream. Other numbers in them are smaller."""
    elements = elements_of(plan)
    leaves = [np.asarray(leaf).reshape(-1) for one in elements for leaf in flatten(one)[0]]
    return Counter(int(number) for leaf in leaves for number in leaf if number >= 100)


@pytest.mark.parametrize(
    "node",
    [node for node in EXAMPLES if isinstance(node, StatefulNode) and type(node) not in OF_LOADERS],
    ids=lambda node: type(node).__name__,
)
def test_shards_of_a_stream_yield_its_records_or_are_refused(node: Node):
    make = numbers if isinstance(node, BucketStreamNode) else tokens
    if isinstance(node, RepeatStreamNode):
        node = replace(node, num_epochs=2)
    plan = node.with_parents([make(12) for _ in node.parents])
    shards = [ShardOptions(index, 2) for index in range(2)]

    if plan.shard_problem is None:
        found = [records_in(cut_into_shards(plan, shard, site=HERE)) for shard in shards]
        assert {*found[0], *found[1]} == {*records_in(plan)}
        assert not {*found[0]} & {*found[1]}
    else:
        with pytest.raises(PlanError, match=r"cannot be distributed over shards: (each|the) "):
            cut_into_shards(plan, shards[0], site=HERE)


def test_a_stateful_node_that_does_not_say_how_it_is_sharded_cannot_be_used():
    @frozen_dataclass
    class Unsharded(StreamStepNode):
        @property
        def label(self) -> str:
            return "Unsharded"

    with pytest.raises(TypeError, match="shard_problem"):
        Unsharded(site=HERE, parent=STREAM)  # pyright: ignore[reportAbstractUsage]


def test_a_step_that_does_not_say_how_its_epochs_differ_cannot_be_used():
    @frozen_dataclass
    class Timeless(Step):
        @property
        def label(self) -> str:
            return "Timeless"

    with pytest.raises(TypeError, match="epoch_change"):
        Timeless(site=HERE, parent=SOURCE)  # pyright: ignore[reportAbstractUsage]


def test_the_collate_function_of_a_source_is_that_of_the_nodes_above_it_up_to_a_batch():
    class Own(list[int]):
        @property
        def collate(self) -> Any:
            return np.asarray

    own = SourceNode(site=HERE, source=Own(range(8)))
    mapped = MapNode(**applied(own))
    both = MixNode(site=HERE, inputs=(mapped, own), proportions=(1, 1))
    one = MixNode(site=HERE, inputs=(mapped, SOURCE), proportions=(1, 1))
    batch = BatchNode(**over(both), size=2)

    assert mapped.collate is both.collate is batch.function is np.asarray
    assert one.collate is None
    assert batch.collate is None
    assert BatchNode(**over(batch), size=2).function is None
