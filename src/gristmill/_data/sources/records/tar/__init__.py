"""Sources over tar archives of samples, as WebDataset writes them."""
