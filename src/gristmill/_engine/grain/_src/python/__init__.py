"""Holds one function in a file whose path ends as the path of a file of Grain does."""
