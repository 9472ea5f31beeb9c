"""Communication between the parent and its worker processes."""
