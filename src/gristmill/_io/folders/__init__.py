"""Folders that several processes write to: atomic files, locks and caches."""
