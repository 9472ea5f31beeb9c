"""Converts TFDS datasets to gristmill datasets."""
