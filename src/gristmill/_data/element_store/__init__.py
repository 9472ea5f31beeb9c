"""Elements in files, by index: those of a `MapDataset` with a cache."""
