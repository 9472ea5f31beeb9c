"""gristmill: the same pipelines for language models, and a tokenizer that takes many texts."""

from functools import partial
from typing import Any

import numpy as np

import gristmill
from benchmarks.contenders import _grain_language_models
from benchmarks.contenders._grain_language_models import Tokenize

packed = partial(_grain_language_models.packed, gristmill)
packed_table = partial(_grain_language_models.packed_table, gristmill)
mixture = partial(_grain_language_models.mixture, gristmill)


class TokenizeMany(Tokenize, gristmill.Map):
    """Tokenizes the texts of a block in one call."""

    def map(self, element: bytes) -> dict[str, Any]:
        return self(element)

    def map_rows(self, elements: list[bytes]) -> list[dict[str, Any]]:
        encoded = self.tokenizer.encode_batch_fast([text.decode() for text in elements])
        return [{"tokens": np.array(each.ids, np.int32)} for each in encoded]


packed_many = partial(packed, tokenize=TokenizeMany)
packed_table_many = partial(packed_table, tokenize=TokenizeMany)
