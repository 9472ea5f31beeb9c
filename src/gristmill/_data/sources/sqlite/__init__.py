"""A source over SQLite databases."""
