"""Pytrees of elements, as trees, columns and JSON."""
