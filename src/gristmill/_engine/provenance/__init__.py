"""Which records an element was made of."""
