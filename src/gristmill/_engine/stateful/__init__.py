"""Stages that keep state from one element to the next."""
