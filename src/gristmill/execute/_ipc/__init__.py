"""How the parent and its worker processes talk."""
