"""Packing documents into rows of a fixed length."""
