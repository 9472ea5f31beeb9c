"""Feeding JAX: batches of a loader or dataset on devices, meshes and hosts."""
