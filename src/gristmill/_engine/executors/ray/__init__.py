"""Executor on a Ray cluster: the only package that loads ray."""
