"""Data as text for terminals, and as pages for browsers and notebooks."""
