"""The class behind `grain.IterDataset.mix`, which programs for Grain also construct themselves."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from gristmill._api.dataset.builders.combining import mix_stream_node
from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset, stream_node
from gristmill._plan.mix_schedule import MixWeights

T_co = TypeVar("T_co", covariant=True)


class MixedIterDataset(PlannedIterDataset[T_co]):
    """A stream that alternates between streams in proportion to weights.

    Args:
        parents: The streams to mix.
        proportions: A positive number for each. By default all are equal.
    """

    def __init__(
        self,
        parents: Sequence[IterDataset[T_co]] | Mapping[str, IterDataset[T_co]],
        proportions: MixWeights | None = None,
    ) -> None:
        node, streams = mix_stream_node(parents, proportions, partial(stream_node, "parents"))
        super().__init__(node, streams)
