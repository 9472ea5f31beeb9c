"""Stages that choose elements, or change their order."""
