"""Pools of actors that several processes read from."""
