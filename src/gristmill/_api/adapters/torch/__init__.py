"""Converts PyTorch datasets to gristmill datasets, and gristmill datasets to PyTorch datasets."""
