"""`tf.train.Example`, the message that most TFRecord files are made of."""

from gristmill._example._format import format_example
from gristmill._example._many import (
    BYTES,
    FLOATS,
    INTEGERS,
    Found,
    find_features,
    take_floats,
    take_integers,
)
from gristmill._example._parse import Values, parse_example

__all__ = [
    "BYTES",
    "FLOATS",
    "INTEGERS",
    "Found",
    "Values",
    "find_features",
    "format_example",
    "parse_example",
    "take_floats",
    "take_integers",
]
