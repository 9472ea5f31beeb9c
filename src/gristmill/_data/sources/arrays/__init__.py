"""Sources over files of arrays: NumPy, idx, HDF5 and Zarr."""
