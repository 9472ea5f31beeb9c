"""Pipelines of other projects, run on Grain and on gristmill: `make clients`."""
