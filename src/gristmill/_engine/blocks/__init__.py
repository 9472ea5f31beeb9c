"""Blocks of elements, their lineage, and the result of computing one."""
