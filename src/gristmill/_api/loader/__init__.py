"""What users call with keywords: `DataLoader`, `load`, and their iterators."""
