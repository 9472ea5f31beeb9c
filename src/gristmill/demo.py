"""The MNIST sample that ships with gristmill, and a reader for the full dataset.

The examples and `gristmill demo` train on it.
"""

from gristmill._demo.mnist import Mnist, MnistError, MnistNotFoundError, load_mnist

__all__ = ["Mnist", "MnistError", "MnistNotFoundError", "load_mnist"]
