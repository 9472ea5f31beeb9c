"""A small training run on real data: `python -m gristmill.demo`.

Importing this package loads neither jax nor rich; only running the demo does.
"""

from gristmill.demo._mnist import Mnist, MnistError, MnistNotFoundError, load_mnist

__all__ = ["Mnist", "MnistError", "MnistNotFoundError", "load_mnist"]
