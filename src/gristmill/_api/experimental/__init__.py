"""Functions and datasets of Grain's `experimental` module."""
