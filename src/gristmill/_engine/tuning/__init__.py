"""Decisions made by measuring: block sizes, executors, prefetching."""
