"""Stages that run in order, each pulling blocks from the one below."""
