"""The model, loaders and results that `mnist_five_ways.py` and its notebook share."""
