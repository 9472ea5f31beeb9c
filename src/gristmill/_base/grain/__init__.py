"""What only programs for Grain need: its classes, its options, and what they look for."""
