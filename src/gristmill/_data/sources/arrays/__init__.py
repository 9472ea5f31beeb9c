"""Sources over files of arrays: NumPy and idx."""
