"""Converts Hugging Face datasets to gristmill datasets."""
