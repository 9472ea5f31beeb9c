"""Pools of workers, and the executor that uses one: what processes and Ray actors share."""
