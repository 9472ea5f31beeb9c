"""Names of the features that hold the metadata of a record."""

DATASET_INDEX = "_dataset_index"
"""The number of the dataset that a record comes from, in a mixture."""
EPOCH = "_epoch"
"""The pass over the data that a record was read in."""
INDEX = "_index"
"""The position of a record in the stream."""
RECORD = "_record"
"""The record itself, before it is parsed."""
RECORD_KEY = "_record_key"
"""The index of a record in its source."""
SEED = "_seed"
"""The seed of the random transformations of a record."""
META_FEATURES = frozenset({DATASET_INDEX, EPOCH, INDEX, RECORD, RECORD_KEY, SEED})
"""All of these names."""

__all__ = ["DATASET_INDEX", "EPOCH", "INDEX", "META_FEATURES", "RECORD", "RECORD_KEY", "SEED"]
