"""Threads in the background of the consumer."""
