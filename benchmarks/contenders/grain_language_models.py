"""Grain's pipelines for language models."""

from functools import partial

import grain
from absl import flags

from benchmarks.contenders import _grain_language_models

flags.FLAGS.mark_as_parsed()  # Grain's workers read absl flags, and nothing here parses them

packed = partial(_grain_language_models.packed, grain)
packed_table = partial(_grain_language_models.packed_table, grain)
mixture = partial(_grain_language_models.mixture, grain)
