"""Writing records as files of a format, shard by shard."""
