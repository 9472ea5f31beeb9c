"""The fluent API: `MapDataset`, `IterDataset` and their iterators."""
