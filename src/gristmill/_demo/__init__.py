"""A small training run on real data: `gristmill demo`.

Importing this package loads neither jax nor rich; only running the demo does.
"""
