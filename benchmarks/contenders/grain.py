"""Grain's DataLoader."""

from functools import partial

import grain

from benchmarks.contenders import _grain_api

mnist = partial(_grain_api.mnist, grain)
integers = partial(_grain_api.integers, grain)
billion = partial(_grain_api.billion, grain)
