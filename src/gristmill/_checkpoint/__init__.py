"""The state of an iterator, and the files and libraries that store it."""
