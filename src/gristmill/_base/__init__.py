"""Helpers that every other package uses: pytrees, columns, indices, seeds, checks, threads."""
