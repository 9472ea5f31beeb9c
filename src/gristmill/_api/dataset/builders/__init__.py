"""Builders of the plan nodes behind the methods of datasets."""
