"""Ask Keras in a worker process whether it is in a pipeline of Grain, and print the answers."""

import json
import sys
from typing import Any

import grain  # noqa: F401 - Keras knows that it is in a pipeline only if it is imported
from keras.src.utils.backend_utils import in_grain_data_pipeline

from gristmill import MapDataset, MultiprocessingOptions


def check_pipeline(record: Any) -> dict[str, bool]:
    return {
        "is in a pipeline": in_grain_data_pipeline(),
        "has imported Grain": "grain.experimental" in sys.modules,
    }


if __name__ == "__main__":
    stream = MapDataset.range(1).map(check_pipeline).to_iter_dataset()
    print(json.dumps(list(stream.mp_prefetch(MultiprocessingOptions(num_workers=1)))))
