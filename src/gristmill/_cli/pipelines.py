"""Import a pipeline by its name on the command line."""

import importlib
import os
import sys
from typing import Any, TypeAlias, cast

from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.loader.loader import DataLoader
from gristmill.errors import PlanError

PIPELINE_HELP = "the pipeline as module:name: a DataLoader, a dataset, or a function that makes one"

Pipeline: TypeAlias = DataLoader | MapDataset[Any] | IterDataset[Any]


def import_pipeline(name: str) -> Pipeline:
    """Return the loader or dataset that a name such as `train:loader` refers to.

    Modules are also found in the current folder, as by `python -m`.

    Raises:
        PlanError: There is no such module or name, or it is not a pipeline.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise PlanError(f"`pipeline` must be written as module:name, got {name!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise PlanError(
            f"`pipeline` {name!r} cannot be imported: {error}. Run the command in the folder of "
            "the module."
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise PlanError(f"`pipeline` {name!r} does not exist: {error}.") from None
    if not isinstance(found, DataLoader | MapDataset | IterDataset) and callable(found):
        found = found()
    if not isinstance(found, DataLoader | MapDataset | IterDataset):
        raise PlanError(
            f"`pipeline` {name!r} must be a `DataLoader`, a `MapDataset` or an `IterDataset`, got "
            f"{type(found).__name__}."
        )
    return cast("Pipeline", found)
