"""Executors: what computes the random-access part of a plan."""
