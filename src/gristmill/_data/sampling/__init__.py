"""The order of records: samplers, shuffling, sharding."""
