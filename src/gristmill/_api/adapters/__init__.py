"""Converts datasets of other libraries to gristmill datasets, and gristmill datasets to theirs."""
