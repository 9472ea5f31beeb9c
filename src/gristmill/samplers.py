"""Grain's `samplers` module."""

from gristmill.order import IndexSampler, Sampler, SequentialSampler

__all__ = ["IndexSampler", "Sampler", "SequentialSampler"]
