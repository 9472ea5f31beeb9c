"""Stages that make batches of other sizes."""
