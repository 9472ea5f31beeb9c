"""Grain's DataLoader and datasets."""

from functools import partial

import grain

from benchmarks.contenders import _grain_api, _grain_datasets

mnist = partial(_grain_api.mnist, grain)
records = partial(_grain_api.records, grain)
integers = partial(_grain_api.integers, grain)
billion = partial(_grain_api.billion, grain)
shuffled_integers = partial(_grain_datasets.shuffled_integers, grain)
endless = partial(_grain_datasets.endless, grain)
mixed_integers = partial(_grain_datasets.mixed_integers, grain)
mixed_streams = partial(_grain_datasets.mixed_streams, grain)
packing = partial(_grain_datasets.packing, grain)
