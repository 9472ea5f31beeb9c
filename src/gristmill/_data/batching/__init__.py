"""Stacking elements into batches."""
