"""Kauldron: a `DataSource` pipeline with its own transforms."""

from importlib.metadata import version
from typing import Any

import numpy as np
from kauldron import kd

from clients._digest import report


class Images:
    """Small images that are computed from their index."""

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.full((16, 16, 3), index % 256, np.uint8), "label": index, "name": "x"}


if __name__ == "__main__":
    pipeline = kd.data.py.DataSource(
        data_source=Images(),
        shuffle=True,
        seed=0,
        num_epochs=2,
        batch_size=32,
        num_workers=0,
        transforms=[
            kd.data.py.Elements(keep=["image", "label"]),
            kd.data.py.ValueRange(key="image", in_vrange=(0, 255), vrange=(0, 1)),
        ],
    )
    report(pipeline, kauldron=version("kauldron"))
