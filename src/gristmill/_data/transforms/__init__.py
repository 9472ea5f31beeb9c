"""The transformations that users derive from or use."""
