"""Find the steps of a stream, and the node at its bottom."""

from collections.abc import Iterator, Sequence

from gristmill._plan.nodes.base import ENDLESS, Node, RecordsNode, Step
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.hints import HintNode, ReadNode, all_nodes
from gristmill._plan.nodes.origin_leaf import OriginLeafNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.steps import BatchNode, FlatMapNode
from gristmill._plan.nodes.stream import StreamStepNode

_MAX_SHOWN_STEPS = 8
"""The most steps in one line: the first one, and the last ones."""


def steps_of(plan: Node) -> list[Step]:
    """Return the steps at the top of a plan, bottom up."""
    return [node for node in _segment(plan) if isinstance(node, Step)][::-1]


def bottom_of(plan: Node) -> Node:
    """Return the node below the steps at the top of a plan."""
    node = plan
    for step in _segment(plan):
        node = step.parent
    return node


def base_of(plan: Node) -> RecordsNode:
    """Return the records below the steps: those of a sampler or a dataset."""
    node = bottom_of(plan)
    if not isinstance(node, RecordsNode):
        raise TypeError(f"{node.label} has no records by position")
    return node


def sample_of(plan: Node) -> SampleNode:
    """Return the sampled records below the steps."""
    node = bottom_of(plan)
    if not isinstance(node, SampleNode):
        raise TypeError(f"{node.label} is not sampled")
    return node


def sample_below(plan: Node) -> SampleNode:
    """Return the sampled records of a plan, also below operations over iterators."""
    node = bottom_of(plan)
    while isinstance(node, StreamStepNode):
        node = bottom_of(node.parent)
    return sample_of(node)


def num_flat_maps(plan: Node) -> int:
    """Return the number of flat maps of a plan: a cursor has an entry for each."""
    return sum(isinstance(step, FlatMapNode) for step in steps_of(plan))


def num_outputs_in_leaf(plan: Node) -> int:
    """Return how many numbers of outputs follow a position in the leaf of `provenance=True`."""
    node = plan
    while node.parents and not (
        isinstance(node, OriginLeafNode) or (isinstance(node, BatchNode) and node.adds_origins)
    ):
        node = node.parents[0]
    return num_flat_maps(node)


def known_length(plan: Node) -> int | None:
    """Return the number of elements that a plan yields, or `None` if it is unknown or endless."""
    if any(isinstance(node, ReadNode) and node.on_error is not None for node in all_nodes(plan)):
        return None  # records that raise are skipped
    if not plan.is_dense or bottom_of(plan).length() >= ENDLESS:
        return None
    length = plan.length()
    return None if length >= ENDLESS else length


def num_full_batches(plan: Node, batch_size: int) -> int | None:
    """Return the number of batches of a plan that have `batch_size` rows, if it is known."""
    batches = next((step for step in _segment(plan) if isinstance(step, BatchNode)), None)
    length = known_length(plan)
    if length is None or batches is None or batches.size != batch_size:
        return None
    return batches.parent.length() // batches.size


def labels_of(plan: Node) -> list[str]:
    """Return the labels of the steps of a plan, from its source up.

    >>> from gristmill import MapDataset
    >>> labels_of(MapDataset.range(2).to_iter_dataset().map(str)._plan_node)
    ['RangeDataSource(start=0, stop=2, step=1)', 'ToIter(num_threads=16)', 'Map str']
    """
    labels: list[str] = []
    node = plan
    while len(node.parents) == 1:
        if not isinstance(node, AccessNode):  # not a step that the user added
            labels.append(node.label)
        (node,) = node.parents
    return [node.label, *labels[::-1]]


def shorten_steps(labels: Sequence[str]) -> str:
    """Return the labels of steps in one line: the first one, and the last ones.

    >>> shorten_steps(["source", "Map f", "Batch(2)"])
    'source -> Map f -> Batch(2)'
    """
    shown = list(labels)
    if len(shown) > _MAX_SHOWN_STEPS:
        shown[1 : 1 - _MAX_SHOWN_STEPS] = ["..."]
    return " -> ".join(shown)


def _segment(plan: Node) -> Iterator[Step | HintNode]:
    """Yield the nodes that share the cursors of the node below them, top down."""
    node = plan
    while isinstance(node, Step | HintNode):
        yield node
        node = node.parent


def missing_batch(node: BatchNode) -> str | None:
    """Return the description of a batch that never comes, because it drops all elements."""
    if not node.drop_remainder:
        return None
    most = bottom_of(node.parent).length()  # if no filter removes any
    for step in steps_of(node.parent):
        most = step.max_outputs(most)
    if not most or most >= node.size:  # if there is no element at all, no option helps
        return None
    return (
        f"There will be no batch: `drop_remainder` needs {node.size} elements, there are at most "
        f"{most}. Use a smaller `batch_size`, or keep the remainder."
    )
