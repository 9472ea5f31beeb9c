"""How a plan runs."""
