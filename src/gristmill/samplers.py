"""The names of Grain's `samplers` module."""

from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler

__all__ = ["IndexSampler", "Sampler", "SequentialSampler"]
