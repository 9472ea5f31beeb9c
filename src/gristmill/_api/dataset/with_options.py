"""The dataset that sets options of a whole pipeline."""

from typing import TypeVar

from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._api.dataset.options import DatasetOptions, options_set
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_kind
from gristmill._plan.nodes.hints import OptionsNode

T_co = TypeVar("T_co", covariant=True)


class WithOptionsIterDataset(PlannedIterDataset[T_co]):
    """Sets options for all steps of a pipeline, both before and after this one.

    The elements do not change. If options are set several times, the last ones take priority.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(5000).filter(lambda x: x == 0).to_iter_dataset()
    >>> ds = WithOptionsIterDataset(ds, DatasetOptions(filter_raise_threshold_ratio=0.99))
    >>> list(ds)
    Traceback (most recent call last):
    ...
    gristmill.errors.FilterError: Filter <lambda> skipped ...

    Args:
        parent: The stream to read.
        options: The options to set.

    Raises:
        PlanTypeError: If `options` is not a `DatasetOptions`.
    """

    def __init__(self, parent: IterDataset[T_co], options: DatasetOptions) -> None:
        checked = as_kind("options", options, DatasetOptions, remedy="Pass `DatasetOptions(...)`.")
        node = OptionsNode(site=call_site(), parent=plan_of(parent), options=options_set(checked))
        super().__init__(node, (parent,))
