"""`tf.train.Example`, the message that most TFRecord files are made of."""

from gristmill._example._format import format_example
from gristmill._example._parse import Values, parse_example

__all__ = ["Values", "format_example", "parse_example"]
