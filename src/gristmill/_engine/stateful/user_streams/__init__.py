"""Stages that run iterators of the user's own."""
