"""Random access: from positions or indices to a block of elements."""
