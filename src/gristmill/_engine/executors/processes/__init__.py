"""The executor that computes in worker processes."""
