"""A multilayer perceptron for MNIST in plain JAX: parameters, loss, gradient descent."""

# Some functions of JAX have no type annotations.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

NUM_CLASSES: Final = 10
LAYER_SIZES: Final = (28 * 28, 512, 512, NUM_CLASSES)
INIT_SCALE: Final = 1e-2

Array = jax.Array | NDArray[Any]
Params = list[tuple[jax.Array, jax.Array]]  # per layer: weights (outputs, inputs), biases (outputs)
_Function = TypeVar("_Function", bound=Callable[..., object])


def jit(function: _Function) -> _Function:
    """Compile `function` with JAX. Unlike `jax.jit`, keeps its type."""
    return cast(_Function, jax.jit(function))


def init_params(seed: int, sizes: Sequence[int] = LAYER_SIZES) -> Params:
    """Return small, normally distributed weights and biases that depend on `seed` alone.

    >>> [weights.shape for weights, _ in init_params(0)]
    [(512, 784), (512, 512), (10, 512)]
    """
    # One key more than there are layers, as in the JAX tutorial, to get the same weights.
    keys = jax.random.split(jax.random.PRNGKey(seed), len(sizes))
    params: Params = []
    for key, inputs, outputs in zip(keys[:-1], sizes[:-1], sizes[1:], strict=True):
        weights_key, biases_key = jax.random.split(key)
        weights = INIT_SCALE * jax.random.normal(weights_key, (outputs, inputs))
        biases = INIT_SCALE * jax.random.normal(biases_key, (outputs,))
        params.append((weights, biases))
    return params


def log_probabilities(params: Params, images: Array) -> jax.Array:
    """Return the logarithm of the probability of each class, one row per image.

    >>> log_probabilities(init_params(0), jnp.zeros((2, 784))).shape
    (2, 10)
    """
    *hidden, (last_weights, last_biases) = params
    activations = jnp.asarray(images)
    for weights, biases in hidden:
        activations = jax.nn.relu(activations @ weights.T + biases)
    return jax.nn.log_softmax(activations @ last_weights.T + last_biases)


def loss(params: Params, images: Array, labels: Array) -> jax.Array:
    """Return the cross entropy. The mean is over images and classes, as in the JAX tutorial."""
    targets = jax.nn.one_hot(labels, NUM_CLASSES)
    return -jnp.mean(log_probabilities(params, images) * targets)


@jit
def update(params: Params, images: Array, labels: Array, step_size: float) -> Params:
    """Take one step of gradient descent.

    >>> images, labels = jnp.ones((2, 784)), jnp.array([3, 3])
    >>> before = init_params(0)
    >>> after = update(before, images, labels, 0.01)
    >>> bool(loss(after, images, labels) < loss(before, images, labels))
    True
    """
    gradient = cast(Callable[..., Params], jax.grad(loss))
    gradients = gradient(params, images, labels)
    return [
        (weights - step_size * d_weights, biases - step_size * d_biases)
        for (weights, biases), (d_weights, d_biases) in zip(params, gradients, strict=True)
    ]


@jit
def count_correct(params: Params, images: Array, labels: Array) -> jax.Array:
    """Count the images whose most probable class is their label."""
    return jnp.sum(jnp.argmax(log_probabilities(params, images), axis=1) == labels)
