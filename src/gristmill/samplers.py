"""The names of Grain's `samplers` module."""

from gristmill._data.sampling.epoch_samplers import SubsetSampler, WeightedSampler
from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler

__all__ = ["IndexSampler", "Sampler", "SequentialSampler", "SubsetSampler", "WeightedSampler"]
