"""Sources: random access to records, one package per kind of storage."""
