"""The perceptron of JAX's tutorials on data loading: weights, training step, accuracy."""

import jax
import jax.numpy as jnp

LAYER_SIZES = (28 * 28, 512, 512, 10)
STEP_SIZE = 0.01


def init_params(seed=0):
    """Return small random weights and biases for each layer, which depend only on `seed`."""
    keys = jax.random.split(jax.random.PRNGKey(seed), len(LAYER_SIZES))
    params = []
    for key, inputs, outputs in zip(keys, LAYER_SIZES[:-1], LAYER_SIZES[1:], strict=False):
        weights_key, biases_key = jax.random.split(key)
        weights = 0.01 * jax.random.normal(weights_key, (outputs, inputs))
        biases = 0.01 * jax.random.normal(biases_key, (outputs,))
        params.append((weights, biases))
    return params


def predict(params, images):
    """Return the log-probability of each digit, a row per image.

    The images may be bytes or floats, flat or not, since the loaders differ in that.
    """
    activations = jnp.reshape(images, (len(images), -1)).astype(jnp.float32)
    for weights, biases in params[:-1]:
        activations = jnp.maximum(activations @ weights.T + biases, 0)
    weights, biases = params[-1]
    return jax.nn.log_softmax(activations @ weights.T + biases)


def loss(params, images, labels):
    """Return the cross entropy, as a mean over images and digits."""
    return -jnp.mean(predict(params, images) * jax.nn.one_hot(labels, LAYER_SIZES[-1]))


@jax.jit
def update(params, images, labels):
    """Take one step of gradient descent."""
    gradients = jax.grad(loss)(params, images, labels)
    return jax.tree.map(lambda param, slope: param - STEP_SIZE * slope, params, gradients)


@jax.jit
def count_correct(params, images, labels):
    """Return the number of images that are classified correctly."""
    return jnp.sum(jnp.argmax(predict(params, images), axis=1) == labels)
