"""What `mnist_five_ways.py` and its notebook share: a model, the loaders, and who was how fast."""
