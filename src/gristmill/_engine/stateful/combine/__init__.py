"""Stages over several streams."""
