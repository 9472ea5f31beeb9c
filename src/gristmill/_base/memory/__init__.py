"""Arrays in memory that JAX or other processes use without a copy."""
