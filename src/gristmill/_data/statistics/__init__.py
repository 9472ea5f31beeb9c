"""Summaries of the values in a dataset, computed in one pass and merged over shards."""
