"""Datasets of other libraries as ours, and ours as theirs: PyTorch, Hugging Face, TFDS.

The other library is imported when one of these is called, and not before.
"""

from gristmill.adapters._huggingface import from_huggingface
from gristmill.adapters._tfds import from_tfds
from gristmill.adapters._to_torch import to_torch
from gristmill.adapters._torch import from_torch

__all__ = ["from_huggingface", "from_tfds", "from_torch", "to_torch"]
